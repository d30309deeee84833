"""Active membership inference as an experiment: declarations, claims and reports."""

import math
from dataclasses import asdict
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.reports import checked_report

from coterie.attacks.active_membership.methods import COMMON, OWN, PUBLIC
from coterie.attacks.active_membership.tasks import Inferred
from coterie.attacks.active_membership.trial import AttackHistory, AttackMeasurement, HonestUtility, MethodTrial
from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reproduce.active_membership import AttackClaim, AttackExperiment
from coterie.reproduce.declarations import FULL, QUICK, declared, read_declaration
from coterie.reproduce.experiment import Job
from coterie.reproduce.runner import Run

NAMES = ("cgd-active", "cgd-active-energy", "cgd-active-scale")
UTILITY = HonestUtility(0.8, 0.02, 0.7)


def trial(method: str, accuracy: float, auc: float, utility: float = 0.8) -> dict[str, object]:
    found = Inferred(round(1000 * accuracy), 1000, accuracy, 1 - accuracy, auc)
    views = (COMMON,) if method in ("fedavg", "ditto") else (OWN, PUBLIC)

    def course(strength: float, mean: float) -> AttackHistory:
        return AttackHistory(
            strength, [AttackMeasurement(5, dict.fromkeys(views, found), HonestUtility(mean, 0.02, 0.5))], 0.0
        )

    courses = [course(0.0, 0.8), course(1.0, utility)]
    return asdict(MethodTrial(method, 10, True, UTILITY, 0.0, courses))  # type: ignore[arg-type]


def told(claim: AttackClaim, rows: dict[str, list[dict[str, object]]], paper_examples: int = 0) -> Judgement:
    table = {"name": "T", "set": {"participants": 8, "malicious": 2, "examples": 40, "strength": 1.0}}
    experiment = msgspec.convert(
        {"tables": [table], "methods": list(rows), "claims": [msgspec.to_builtins(claim)]}, AttackExperiment
    )
    if paper_examples:
        experiment = msgspec.structs.replace(experiment, paper_examples={"T": paper_examples})
    nothing = asdict(Inferred(500, 1000, 0.5, 0.5, 0.5))
    records = {
        Job("T", method, number): {"trial": record, "nothing": nothing}
        for method, found in rows.items()
        for number, record in enumerate(found)
    }
    (judged,) = experiment.findings(records).numbers["claims"]
    return Judgement(judged["judgement"])


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_experiments_can_be_run(name: str) -> None:
    declaration = read_declaration(declared()[name])
    assert {QUICK, "medium", FULL} <= set(declaration.sizes)
    for size in declaration.sizes:
        experiment = declaration.experiment(size)
        assert isinstance(experiment, AttackExperiment)
        for table in experiment.tables:
            attack = experiment.make_attack(table.name, 0, None)
            assert attack.strength
            assert math.isclose(attack.malicious / (attack.participants + attack.malicious), 0.2, abs_tol=0.05)
            needed = {claim.method for claim in experiment.claims if size == FULL or not claim.ours}
            assert needed <= set(experiment.methods)


def test_an_unknown_setting_of_an_attack_is_refused() -> None:
    declared_wrongly = {"tables": [{"name": "T"}], "methods": [], "attack": {"data": "digits", "strnegth": 1}}
    experiment = msgspec.convert(declared_wrongly, AttackExperiment)
    with pytest.raises(ConfigError, match="strnegth"):
        experiment.make_attack("T", 0, None)


def test_a_strength_must_be_declared() -> None:
    experiment = msgspec.convert(
        {"tables": [{"name": "T"}], "methods": [], "attack": {"data": "digits"}}, AttackExperiment
    )
    with pytest.raises(ConfigError, match="strength"):
        experiment.make_attack("T", 0, None)


@pytest.mark.parametrize(
    ("accuracies", "judgement"),
    [
        ((0.8, 0.82, 0.81), Judgement.HOLDS),
        ((0.5, 0.51, 0.49), Judgement.FAILS),
        ((0.54, 0.55, 0.53), Judgement.OPEN),
        ((0.8, 0.9), Judgement.OPEN),  # two trials, however many targets they have
    ],
)
def test_success_is_judged_by_the_mean_over_trials(accuracies: tuple[float, ...], judgement: Judgement) -> None:
    claim = AttackClaim(says="works", method="fedavg", least=54.0)
    rows = {"fedavg": [trial("fedavg", share, 0.6) for share in accuracies]}
    assert told(claim, rows) is judgement
    assert told(claim, rows, paper_examples=8 * 40) is judgement
    assert told(claim, rows, paper_examples=8 * 40 + 1) is Judgement.OPEN
    assert told(msgspec.structs.replace(claim, ours=True), rows, paper_examples=8 * 40 + 1) is judgement


def test_areas_and_accuracies_are_compared_trial_by_trial() -> None:
    rows = {
        "fedavg": [trial("fedavg", 0.8, auc, utility=0.5) for auc in (0.9, 0.8, 0.7)],
        "confined": [trial("confined", 0.5, auc, utility=0.5 + auc / 6) for auc in (0.7, 0.61, 0.5)],
    }
    less = AttackClaim(says="less", method="confined", against="fedavg", measure="auc", most=0.0)
    assert told(less, rows) is Judgement.HOLDS
    kept = AttackClaim(says="kept", method="confined", against="watched", measure="utility", least=-5.0)
    assert told(kept, rows) is Judgement.FAILS
    better = AttackClaim(says="better", method="confined", against="fedavg", measure="utility", least=0.0)
    assert told(better, rows) is Judgement.HOLDS
    less_lost = AttackClaim(says="less lost", method="confined", against="fedavg", measure="lost", most=0.0)
    assert told(less_lost, rows) is Judgement.HOLDS
    seen = AttackClaim(says="seen", method="confined", view=PUBLIC, measure="auc", most=0.6)
    assert told(seen, rows) is Judgement.OPEN


def test_a_small_experiment_is_reported_and_can_be_rewritten(tmp_path: Path) -> None:
    shipped = read_declaration(declared()["cgd-active"])
    small = {"data": "digits", "strength": 1.0, "examples": 12, "threshold": 0.5, "patience": 20, "rounds": 4}
    declaration = msgspec.structs.replace(
        shipped,
        settings={
            "attack": {"participants": 3, "malicious": 1},
            "tables": [{"name": "digits", "set": small}],
            "methods": ["fedavg", "ditto", "confined", "confined-checked"],
        },
        sizes={FULL: msgspec.structs.replace(shipped.sizes[QUICK], settings={})},
    )
    run = Run("small", declaration, tmp_path, trials=2)
    report, text = checked_report(run)
    assert {row["method"] for row in report.numbers["outcomes"]} == {"fedavg", "ditto", "confined", "confined-checked"}
    assert all(np.shape(row["trials"]) == (2,) for row in report.numbers["outcomes"])
    assert "public displacement" in text
    assert (tmp_path / "inference.png").stat().st_size > 0
