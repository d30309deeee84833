"""Updates recovered from sums and inverted: small runs, interrupted ones, claims, and the rewritten report."""

from pathlib import Path

import msgspec
import pytest
from tests.support.jobs import context, experiment_of
from tests.support.reports import checked_report

from coterie.attacks.inversion.measure import MEAN
from coterie.reports.findings import Judgement
from coterie.reproduce import checkpoints
from coterie.reproduce.declarations import FULL, QUICK, declared, read_declaration
from coterie.reproduce.experiment import Job, Record
from coterie.reproduce.reconstruction import WindowErrors
from coterie.reproduce.recovery import ONE, OWN, WHOLE, DrawnClaim, Recovery, RecoveryTask
from coterie.reproduce.runner import Run

TASK = RecoveryTask(
    name="digits", data="digits", model="mlp", before=24, rounds=30, learning_rate=0.1, batch_size=40, targets=2
)
CLAIM = DrawnClaim(task="digits", window="one picture", says="pictures are recovered", row="T = 1", above=MEAN)
EXPERIMENT = Recovery(clients=12, cohort=4, privacy=(2, 4), tasks=(TASK,), steps=40, claims=(CLAIM,))
(JOB,) = EXPERIMENT.jobs(1)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """What the job measures without an interruption."""
    found = EXPERIMENT.measure(JOB, 0, context(tmp_path_factory.mktemp("whole")))
    assert found is not None
    return found


def test_updates_are_recovered_without_circles_only_and_then_inverted(record: Record) -> None:
    for window in WHOLE, ONE:
        found = record["windows"][window]
        assert list(found) == ["random", "multi-round", "multi-round T=4"]
        assert found["random"]["exposed"] == 12
        assert found["multi-round"]["exposed"] == 0
        assert max(found["random"]["errors"]) < 0.1 < min(found["multi-round T=4"]["errors"])
    whole, one = (record["drawn"][window]["rows"] for window in (WHOLE, ONE))
    assert [row for row in whole if row.startswith("T")] == ["T = 1", "T = 2", "T = 4"]
    assert {"T = 2, alone", "T = 2, together", "T = 4, alone", "T = 4, together"} < set(one)
    assert abs(one["T = 1"]["psnr"] - one[OWN]["psnr"]) < 2 < one["T = 1"]["psnr"] - one[MEAN]["psnr"]
    assert one["T = 1"]["recognised"] == 1


def test_an_interrupted_job_continues_and_gives_the_same_result(tmp_path: Path, record: Record) -> None:
    file = checkpoints.path_of(tmp_path, JOB)
    assert EXPERIMENT.measure(JOB, 0, context(tmp_path, 7)) is None
    assert checkpoints.rounds_played(file) == 8
    assert EXPERIMENT.progress(JOB, tmp_path) == pytest.approx(8 / 24)
    assert EXPERIMENT.measure(JOB, 0, context(tmp_path, 18)) is None  # training ends, the first window does not
    assert checkpoints.rounds_played(file) == 24
    assert EXPERIMENT.measure(JOB, 0, context(tmp_path)) == record


def test_clients_that_are_not_available_are_in_no_sum(tmp_path: Path) -> None:
    task = msgspec.structs.replace(TASK, availability="heterogeneous", targets=0)
    record = msgspec.structs.replace(EXPERIMENT, tasks=(task,)).measure(JOB, 0, context(tmp_path))
    assert record is not None
    assert record["drawn"] == {}
    windows = record["windows"][WHOLE]
    assert windows["multi-round T=4"]["rounds"] < windows["random"]["rounds"] == TASK.rounds


def made_up(random: float, circles: float, psnr: float) -> Record:
    def errors(value: float) -> Record:
        found = WindowErrors(errors=(value,) * 3, guess=1.0, told_apart=0.5, bound=None, exposed=0, rounds=30)
        return dict(msgspec.to_builtins(found))

    def reading(value: float) -> Record:
        return {"psnr": value, "mse": 0.01, "ssim": 0.5, "recognised": 0.5}

    found = {"random": errors(random), "multi-round": errors(circles), "multi-round T=4": errors(2 * circles)}
    rows = {"T = 1": reading(psnr), MEAN: reading(12.0)}
    return {"accuracy": 0.9, "windows": {WHOLE: found}, "drawn": {ONE: {"rows": rows}}}


def judged(records: list[Record], experiment: Recovery = EXPERIMENT) -> list[str]:
    findings = experiment.findings({Job("windows", "digits", number): one for number, one in enumerate(records)})
    return [claim["judgement"] for claim in findings.numbers["claims"]]


def test_claims_are_judged_by_the_numbers() -> None:
    holds, fails, unclear = map(str, (Judgement.HOLDS, Judgement.FAILS, Judgement.OPEN))
    good = [made_up(0.002, 0.5, 15.0), made_up(0.003, 0.52, 15.5), made_up(0.0025, 0.51, 14.5)]
    assert judged(good) == [holds, holds, holds]
    weak = [made_up(0.6, 0.2, 12.1), made_up(0.61, 0.19, 12.0), made_up(0.62, 0.21, 12.05)]
    margin = msgspec.structs.replace(EXPERIMENT, claims=(msgspec.structs.replace(CLAIM, margin=0.5),))
    assert judged(weak) == [fails, fails, unclear]
    assert judged(weak, margin) == [fails, fails, fails]
    slides = msgspec.structs.replace(EXPERIMENT, slides=("digits",))
    assert judged(good, slides) == [holds, holds, unclear, unclear, holds]  # shares without a spread, and no proof
    assert judged(weak, slides)[3] == fails
    longer = msgspec.structs.replace(EXPERIMENT, paper_rounds={"digits": 10**6})
    assert judged(good, longer) == [unclear] * 3


def test_a_report_has_pictures_and_can_be_rewritten(tmp_path: Path) -> None:
    shipped = read_declaration(declared()["multi-round-pipeline"])
    task = msgspec.to_builtins(msgspec.structs.replace(TASK, before=2, rounds=12))
    declaration = msgspec.structs.replace(
        shipped,
        settings={"clients": 12, "cohort": 4, "privacy": [2, 4], "tasks": [task], "steps": 5},
        sizes={FULL: msgspec.structs.replace(shipped.sizes[FULL], settings={})},
    )
    run = Run("small", declaration, tmp_path, trials=2)
    findings, _ = checked_report(run)
    assert {claim["source"] for claim in findings.numbers["claims"]} == {"ours"}
    for name in "digits.png", "digits-all-examples.png", "digits-one-picture.png":
        assert (tmp_path / name).stat().st_size > 0


def test_the_declaration_has_the_papers_window() -> None:
    sizes = (QUICK, FULL, "slides")
    quick, full, slides = (experiment_of(Recovery, "multi-round-pipeline", size) for size in sizes)
    (task,) = full.tasks
    assert (full.clients, full.cohort, task.before, task.rounds) == (40, 8, 1460, 40)
    assert [task.availability for task in slides.tasks] == ["heterogeneous"]
    assert quick.tasks[0].name not in quick.paper_rounds
