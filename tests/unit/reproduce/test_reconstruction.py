"""Reconstruction errors over windows of rounds: a small run, its claims, and the rewritten report."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.support.jobs import CONTEXT, context, experiment_of

from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reports.markdown import write_findings
from coterie.reproduce.declarations import FULL, QUICK
from coterie.reproduce.experiment import Job, Record
from coterie.reproduce.reconstruction import (
    LOSSY,
    ORDINARY,
    SMALL,
    Reconstruction,
    ReconstructionTask,
    WindowErrors,
)

TASK = ReconstructionTask(name="digits", data="digits", model="mlp", before=10, learning_rate=0.1, batch_size=40)
EXPERIMENT = Reconstruction(clients=12, cohort=4, privacy=(2, 4), rounds=30, losses=0.1, tasks=(TASK,))


def test_a_small_job_measures_every_window_and_can_be_stopped() -> None:
    (job,) = EXPERIMENT.jobs(1)
    record = EXPERIMENT.measure(job, 0, CONTEXT)
    assert record is not None
    windows = record["windows"]
    assert list(windows[SMALL]) == ["random", "multi-round", "multi-round T=4"]
    assert list(windows[ORDINARY]) == ["random", "multi-round"]
    assert list(windows[LOSSY]) == ["multi-round", "multi-round naive"]
    assert windows[SMALL]["random"]["exposed"] == 12
    assert windows[LOSSY]["multi-round"]["exposed"] == 0 < windows[LOSSY]["multi-round naive"]["exposed"]
    assert EXPERIMENT.measure(job, 0, context(Path("unused"), 0)) is None


def made_up(random: float, circles: float, ordinary: float = 2.0) -> Record:
    def errors(value: float, exposed: int = 0) -> Record:
        found = WindowErrors(
            errors=(value, value, value), guess=1.0, told_apart=0.5, bound=None, exposed=exposed, rounds=30
        )
        return dict(msgspec.to_builtins(found))

    return {
        "accuracy": 0.9,
        "windows": {
            SMALL: {"random": errors(random), "multi-round": errors(circles), "multi-round T=4": errors(2 * circles)},
            ORDINARY: {"random": errors(ordinary), "multi-round": errors(circles)},
            LOSSY: {"multi-round": errors(circles), "multi-round naive": errors(random, 7)},
        },
    }


def judged(*records: Record, experiment: Reconstruction = EXPERIMENT) -> list[str]:
    findings = experiment.findings({Job("windows", "digits", number): one for number, one in enumerate(records)})
    return [claim["judgement"] for claim in findings.numbers["claims"]]


def test_claims_are_judged_by_the_numbers() -> None:
    holds, fails, unclear = map(str, (Judgement.HOLDS, Judgement.FAILS, Judgement.OPEN))
    good = [made_up(0.010, 0.5), made_up(0.011, 0.52, 2.1), made_up(0.012, 0.51, 1.9)]
    assert judged(*good) == [holds, holds, unclear, holds, fails]
    assert judged(good[0]) == [unclear, unclear, unclear, unclear, unclear]
    weak = [made_up(0.6, 0.2), made_up(0.61, 0.19, 2.1), made_up(0.62, 0.21, 1.9)]
    assert judged(*weak) == [fails, fails, fails, holds, fails]
    longer = msgspec.structs.replace(EXPERIMENT, paper_rounds={"digits": 10**6})
    assert judged(*good, experiment=longer) == [unclear, unclear, unclear, holds, fails]  # the last two are our own
    assert judged(*weak, experiment=longer) == [unclear, unclear, unclear, holds, fails]


def test_a_report_is_rewritten_from_its_summary(tmp_path: Path) -> None:
    findings = EXPERIMENT.findings({Job("windows", "digits", number): made_up(0.01, 0.5) for number in range(2)})
    again = EXPERIMENT.report_again(findings.numbers)
    assert write_findings(again) == write_findings(findings)
    assert (
        "survivors of broken circles determine 7 clients, and sums that exclude broken circles 0" in again.headlines[0]
    )
    for drawing in again.drawings:
        drawing.draw(tmp_path / drawing.file)
        assert (tmp_path / drawing.file).stat().st_size > 10_000
    with pytest.raises(ConfigError, match="do not hold"):
        EXPERIMENT.report_again({})


def test_headline_and_table_have_one_median_and_our_means_stand_beside_the_published() -> None:
    medians = (0.01, 0.02, 0.09)
    findings = EXPERIMENT.findings({Job("windows", "digits", one): made_up(m, 0.5) for one, m in enumerate(medians)})
    assert "the median error is 0.026 with random selection" in findings.headlines[0]
    assert "| small steps | random selection | 0.0262 | 0.01 to 0.09 | 0.04 |" in write_findings(findings)
    assert "| ours, digits, small steps | 0.04 | 0.5 |" in write_findings(findings)
    assert "| ours, digits, ordinary steps | 2 | 0.5 |" in write_findings(findings)
    alone = EXPERIMENT.findings({Job("windows", "digits", 0): made_up(0.01, 0.5)})
    assert "| small steps | random selection | 0.01 | 0.01 to 0.01 | 0.01 |" in write_findings(alone)


def test_the_mean_that_is_printed_is_the_mean_that_is_judged() -> None:
    """Both are geometric: the mean of these is 0.04, but what is judged and printed is 0.026."""
    medians = (0.01, 0.02, 0.09)
    findings = EXPERIMENT.findings({Job("windows", "digits", one): made_up(m, 0.5) for one, m in enumerate(medians)})
    low, high = re.findall(r"median error between ([0-9.]+) and ([0-9.]+)", findings.claims[0].statistic)[0]
    assert float(low) * float(high) == pytest.approx(0.0262**2, rel=0.1)


def test_the_declaration_has_its_sizes() -> None:
    quick, full = (experiment_of(Reconstruction, "multi-round-reconstruction", size) for size in (QUICK, FULL))
    assert [task.data for task in quick.tasks] == ["digits"]
    assert [task.data for task in full.tasks] == ["cifar10", "mnist"]
    assert (full.clients, full.cohort) == (40, 8)
