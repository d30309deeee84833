"""The table of membership inference: dealing data, judging claims, drawing figures and rewriting reports."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.jobs import experiment_of
from tests.support.reports import checked_report

from coterie.attacks.membership.measure import CLIENT, NOTHING, SECURE, SPARSE, PassiveTrial, Success
from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reproduce.declarations import FULL, QUICK, Declaration, declared, read_declaration
from coterie.reproduce.experiment import Job
from coterie.reproduce.membership import MembershipTable, PrintedRates
from coterie.reproduce.runner import Run


def shipped() -> Declaration:
    return read_declaration(declared()["ccesa-membership"])


def test_every_size_can_be_played() -> None:
    for size in shipped().sizes:
        experiment = experiment_of(MembershipTable, shipped(), size)
        for total in experiment.totals:
            game = experiment.make_game(total)
            assert game.examples * game.cohorts[-1] == total
            assert game.threshold == 7  # the rule of Choi et al. for 10 clients and p = 0.9


def test_the_full_size_is_the_papers() -> None:
    experiment = experiment_of(MembershipTable, shipped(), FULL)
    assert experiment.totals == tuple(one.examples for one in experiment.paper) == (5000, 10000, 15000, 50000)
    game = experiment.make_game(50_000)
    # CIFAR-10 has 60,000 pictures: candidates, strangers and what nine other clients need.
    assert 2 * game.examples + game.strangers + 9 * game.examples <= 60_000


def test_totals_that_cannot_be_dealt_are_refused() -> None:
    experiment = experiment_of(MembershipTable, shipped(), QUICK)
    with pytest.raises(ConfigError, match="evenly"):
        experiment.make_game(301)
    with pytest.raises(ConfigError, match="settings of the game"):
        msgspec.structs.replace(experiment, game={**experiment.game, "rounds": "many"}).make_game(300)
    with pytest.raises(ConfigError, match="settings of the game: there is no setting 'round'"):
        msgspec.structs.replace(experiment, game={**experiment.game, "round": 3}).make_game(300)


def test_claims_are_judged_by_the_trials() -> None:
    """An attack that is always right on plain averaging and blind elsewhere; then one that is blind everywhere."""
    experiment = experiment_of(MembershipTable, shipped(), QUICK)
    members = np.array([[True, False] * 50])

    def measured(right: int) -> dict[str, Success]:
        """Return an attack that is right about so many of the first candidates, and calls no other a member."""
        scores = members & (np.arange(100) < right)
        return dict.fromkeys(("loss", "shadow", "lira", "rmia"), Success.of(scores.astype(float), members, 0.5))

    right, blind = (100, 99, 98), (0, 2, 0)
    hidden = dict.fromkeys((NOTHING, SECURE, SPARSE, "sum-4", "sum-10", "noisy-sum-10"), measured(0))
    budget = {CLIENT: {"lira": [(2, 0.5)], "rmia": [(2, 0.5)]}}

    def judged(client: Sequence[int], experiment: MembershipTable = experiment) -> list[str]:
        records = {
            Job("membership", "300", trial): msgspec.to_builtins(
                PassiveTrial({**hidden, CLIENT: measured(share)}, {}, budget)
            )
            for trial, share in enumerate(client)
        }
        return [claim["judgement"] for claim in experiment.findings(records).numbers["claims"]]

    masks = [Judgement.BY_CONSTRUCTION, Judgement.BY_CONSTRUCTION]
    assert judged(right) == [Judgement.HOLDS, *masks, Judgement.HOLDS]
    assert judged(blind) == [Judgement.FAILS, *masks, Judgement.FAILS]
    # On the paper's data, fewer examples and another model judge only what is so by construction. What the paper says
    # of recall is judged by its own numbers.
    papers = msgspec.structs.replace(experiment, game={**experiment.game, "data": "cifar10"})
    assert judged(right, papers) == judged(blind, papers) == [Judgement.OPEN, *masks, Judgement.FAILS]


def test_accuracy_and_precision_determine_recall() -> None:
    experiment = experiment_of(MembershipTable, shipped(), QUICK)
    assert [round(one.recall, 2) for one in experiment.paper] == [0.78, 0.86, 0.95, 0.94]
    found, missed, alarms, quiet = 30, 10, 20, 20  # members found and missed, others taken for members or not
    rates = PrintedRates(
        examples=80, accuracy=(100 * (found + quiet) / 80, 0, 0), precision=(100 * found / (found + alarms), 0, 0)
    )
    assert rates.recall == pytest.approx(found / (found + missed))


def test_reports_judge_draw_and_can_be_rewritten(tmp_path: Path) -> None:
    small = {"cohorts": [3, 10], "rounds": 1, "epochs": 1, "references": 4, "victims": 2, "strangers": 20}
    declaration = msgspec.structs.replace(
        shipped(),
        settings={"totals": [40], "game": {"data": "digits", "model": "softmax-regression", **small}},
        sizes={FULL: shipped().sizes[QUICK]},
    )
    run = Run("small", declaration, tmp_path, trials=2)
    report, text = checked_report(run)
    assert len(report.numbers["claims"]) == 4
    assert len(report.numbers["trials"]["40"]) == 2
    assert 0.2 < report.numbers["summaries"]["40"][SECURE]["rmia"]["auc"] < 0.8
    assert "5,000, paper | 72.49" in text
    assert (tmp_path / "membership.png").stat().st_size > 0
