"""Verdicts of passive membership inference and of the audit of one sum follow from the numbers, whatever they are."""

from dataclasses import replace

import pytest

from coterie.attacks.attack import run_attack
from coterie.attacks.membership import measure
from coterie.attacks.membership.measure import CLIENT, NOTHING, SECURE, SPARSE, PassiveMembership, PassiveTrial, Success
from coterie.attacks.membership.statistics import ATTACKS
from coterie.attacks.one_sum.bounds import Bound, ceiling
from coterie.attacks.one_sum.measure import CRAFTED, PAIRS, Audits, EpsilonAudit, OneSum
from coterie.attacks.one_sum.report import report
from coterie.attacks.ranking import Decisions
from coterie.reports.findings import Effect, Findings
from coterie.reports.words import Level

SUM, NOISY = "sum-4", "noisy-sum-4"
AUDIT = OneSum(cohorts=(4,), noise=(1.0,), tries=1000, trials=1)


def finding_of(monkeypatch: pytest.MonkeyPatch, **areas: float) -> Findings:
    """Return the finding of trials in which every attack has these AUCs, and 0.5 where none is given."""

    def trial(_game: PassiveMembership, seed: int, _watch: object) -> PassiveTrial:
        wobble = 0.01 * (seed % 3 - 1)
        views = {
            view: dict.fromkeys(ATTACKS, Success(area + wobble, Decisions(1, 1, 1, 1), (0, 0), (0, 0)))
            for view, area in {**dict.fromkeys((NOTHING, CLIENT, SECURE, SPARSE, SUM, NOISY), 0.5), **areas}.items()
        }
        budget = {CLIENT: {"lira": [(2, 0.5)], "rmia": [(2, 0.5)]}}
        return PassiveTrial(views, {}, budget)

    monkeypatch.setattr(measure, "play_trial", trial)
    monkeypatch.setattr(measure, "trial_seed", lambda _seed, trial: trial)
    return run_attack(measure.PassiveMembership(cohorts=(4,), trials=6), lambda _what, _share: None)


def outcomes(finding: Findings) -> list[Effect]:
    """Return the outcomes for a client's model, the two masked uploads, the sum and the noisy sum."""
    return [line.outcome for line in finding.card]


def test_an_attack_that_fails_on_the_baseline_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of(monkeypatch)
    assert finding.level is Level.NOTHING
    assert "does not work on plain averaging" in finding.headline
    unknown, masked = Effect.NOT_SHOWN, Effect.ELIMINATED  # a mask hides by theory, even if no attack works
    assert outcomes(finding) == [unknown, masked, masked, unknown, unknown]


def test_the_headline_states_what_a_sum_reveals(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of(monkeypatch, **{CLIENT: 0.9, SUM: 0.7})
    assert finding.level is Level.CAUTION
    assert "a masked upload reveals nothing; the sum reveals it too: AUC 0.70" in finding.headline
    assert outcomes(finding) == [
        Effect.NOT_ELIMINATED,
        Effect.ELIMINATED,
        Effect.ELIMINATED,
        Effect.REDUCED,
        Effect.REDUCED,
    ]


def test_a_sum_that_shows_nothing_is_not_called_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of(monkeypatch, **{CLIENT: 0.9})
    assert "an attack on the sum is not shown to work" in finding.headline
    assert outcomes(finding)[3] is Effect.REDUCED
    assert finding.level is Level.CAUTION


def test_a_sum_that_leaks_as_much_as_the_client_is_not_a_defence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcomes(finding_of(monkeypatch, **{CLIENT: 0.9, SUM: 0.9}))[3] is Effect.NOT_ELIMINATED


def test_a_masked_upload_that_leaks_is_reported_as_danger(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of(monkeypatch, **{CLIENT: 0.9, SECURE: 0.6})
    assert finding.level is Level.DANGER
    assert "the attack beats guessing on its masked upload, SA" in finding.headline
    assert outcomes(finding)[1:3] == [Effect.NOT_ELIMINATED, Effect.ELIMINATED]


def audited(plain: float, noisy: float) -> list[EpsilonAudit]:
    bound = Bound(plain, ceiling(500, 1e-5), 0, 0, 500)
    cases = [EpsilonAudit(4, pair, 0.0, 1.0, bound) for pair in PAIRS]
    return [*cases, EpsilonAudit(4, CRAFTED, 1.0, 1.0, replace(bound, epsilon=noisy))]


@pytest.mark.parametrize(
    ("plain", "noisy", "level", "said"),
    [
        (0.0, 0.0, Level.NOTHING, "proves nothing"),
        (1.0, 0.5, Level.CAUTION, "ε ≥ 1.0 for 4 clients"),
        (4.9, 0.5, Level.DANGER, "the most that this number of sums can show"),
        (4.9, 11.0, Level.DANGER, "above the proven"),
    ],
)
def test_the_headline_of_an_audit_fits_its_bounds(plain: float, noisy: float, level: Level, said: str) -> None:
    finding = report(AUDIT, Audits([audited(plain, noisy)], 0.0))
    assert finding.level is level
    assert said in finding.headline
    assert finding.card[0].outcome is Effect.NOT_ELIMINATED
    assert finding.card[1].outcome is (Effect.NOT_ELIMINATED if noisy > 10 else Effect.REDUCED)
