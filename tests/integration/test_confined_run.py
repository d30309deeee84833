"""Whole runs of confined descent: what they learn, what they reveal, and what their reports state."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from safetensors.numpy import load_file
from tests.support.interruptions import same_state

from coterie.api import train
from coterie.cohorts.ledger import Ledger, Outcome
from coterie.errors import ConfigError
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.settings.toml import load_config

SMALL = (
    *("training.algorithm=confined", "rounds=6", "clients.count=12", "cohort.size=6", "training.evaluate_every=1"),
    *("model.name=softmax-regression", "training.executor=processes", "training.workers=0", "aggregation.threads=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0"),
)


def play(folder: Path, *overrides: str) -> RunResult:
    return TrainingRun.begin(folder, load_config(None, [*SMALL, *overrides])).play()


def test_both_ways_to_add_give_the_same_sums(tmp_path: Path) -> None:
    """They add the same integers, so the models are equal bit for bit."""
    secure, additive = play(tmp_path / "secure"), play(tmp_path / "additive", "confined.addition=additive")
    assert same_state(tmp_path / "secure", tmp_path / "additive")
    assert [record.aggregated for record in secure.records] == [record.aggregated for record in additive.records]
    for folder in ("secure", "additive"):
        with Ledger.open(tmp_path / folder / "ledger.sqlite") as ledger:
            ledger.verify()
            assert set(ledger.outcomes().values()) == {Outcome.COMPLETED}
    # Every participant publishes a sum of shares that is as long as a gradient, and gets the sums of all others.
    assert additive.records[0].download_bytes > 4 * additive.records[0].upload_bytes > 0


def test_a_dropout_ends_a_round_of_additive_sharing_and_nothing_is_revealed(tmp_path: Path) -> None:
    result = play(tmp_path / "run", "confined.addition=additive", "faults.dropout=0.3", "rounds=8")
    outcomes = {record.outcome for record in result.records}
    assert outcomes == {Outcome.COMPLETED, Outcome.ABORTED_BEFORE_REVEAL}
    for record in result.records:
        assert bool(record.aggregated) == record.completed == (not record.dropped)
        if record.dropped:
            assert "tolerates no dropout" in record.reason


def test_the_report_states_what_is_sent_and_what_follows_from_it(tmp_path: Path) -> None:
    result = play(tmp_path / "run")
    last = result.records[-1]
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    displacement, worst = (getattr(last, name) for name in ("displacement", "worst"))
    assert "Sums of clipped gradients were sent" in page
    assert f"is itself a usable model, with {displacement:.1%} accuracy" in page
    assert f"model classifies {worst:.1%} correctly" in page
    assert "Only explicit noise counts towards (epsilon, delta), and there was none" in page
    assert "claimed by the paper, not sound; docs/confined.md says why" in page
    assert "decisions (" in page
    assert set(result.models) == {*(f"client-{number:02}" for number in range(1, 13)), "displacement"}


def test_only_explicit_noise_counts(tmp_path: Path) -> None:
    result = play(tmp_path / "run", "noise.kind=skellam", "noise.multiplier=2.0", "rounds=2")
    claimed = [getattr(record, "claimed_epsilon") for record in result.records]  # noqa: B009 - not declared
    assert all(
        record.epsilon and record.epsilon > other > 0 for record, other in zip(result.records, claimed, strict=True)
    )
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert "Only explicit noise counts towards (epsilon, delta). The random starts do not" in page
    assert "-differential privacy for each client with all its data, by skellam noise" in page
    assert "the public displacement, is itself a model, with" in page  # the noise hides how usable it is


PRIVATE = {"spread", "worst", "refused", "stale", "train_loss", "test_loss", "accuracy", "clipped", "compute_seconds"}
NOISE = ("noise.kind=skellam", "noise.multiplier=2.0", "rounds=4")


@pytest.mark.parametrize(("algorithm", "public"), [("confined", "displacement"), ("ditto", "common")])
def test_with_noise_no_value_without_noise_is_recorded(tmp_path: Path, algorithm: str, public: str) -> None:
    folder = tmp_path / "run"
    result = play(folder, *NOISE, f"training.algorithm={algorithm}", "tracking.sums=true")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    for line in lines:
        assert {name for name in PRIVATE if line.get(name)} == set()
        assert line[public] is not None
        assert line["epsilon"] > 0
    header, *rows = (folder / "metrics.csv").read_text().splitlines()
    cells = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    assert all(row.get(name, "") in ("", "0.0") for row in cells for name in PRIVATE)
    # The file has one model, which all who see the sums can compute. The clients' own models are only in memory.
    stored = load_file(folder / "model.safetensors")
    one = {name: tuple(array.shape) for name, array in result.models[next(iter(result.models))].named_parameters()}
    assert {name: array.shape for name, array in stored.items()} == one
    assert len(result.models) == 13
    numbers = result.summary.numbers()
    assert numbers["accuracy"] is None
    assert {name: value for name, value in numbers["extras"].items() if name in PRIVATE and value is not None} == {}
    page = " ".join((folder / "report.html").read_text().split())
    assert "is not recorded: it would show their data without the noise" in page
    assert "decisions (" not in page
    assert "standard deviation" not in page
    assert len(list((folder / "sums").glob("*.npy"))) == sum(record.completed for record in result.records)


def test_with_noise_no_client_is_excluded_because_of_its_loss(tmp_path: Path) -> None:
    """Epsilon assumes that participation does not depend on private data. Here all participants refuse every step."""
    stubborn = ("confined.check.threshold=-1000.0", "rounds=36", "training.evaluate_every=36")
    quiet = play(tmp_path / "quiet", *stubborn)
    assert [record.completed for record in quiet.records] == [True] * 31 + [False] * 5
    noisy = play(tmp_path / "noisy", *NOISE[:2], *stubborn)
    assert all(record.completed for record in noisy.records)
    assert "With noise there is no bound on staleness" in (tmp_path / "noisy" / "report.html").read_text()
    with pytest.raises(ConfigError, match=r"confined\.tau: must be 0 or -1 with noise"):
        load_config(None, [*SMALL, *NOISE, "confined.tau=30"])
    load_config(None, [*SMALL, *NOISE, "confined.tau=0"])


def test_with_noise_availability_does_not_depend_on_labels() -> None:
    with pytest.raises(ConfigError, match=r"availability\.kind: must not be label-dependent with noise"):
        load_config(None, [*SMALL, *NOISE, "availability.kind=label-dependent"])


def test_a_participant_that_refuses_every_step_is_excluded(tmp_path: Path) -> None:
    """All participants refuse every step; after tau such iterations none of them may contribute."""
    result = play(tmp_path / "run", "confined.check.threshold=-1000.0", "confined.tau=2", "rounds=6")
    completed = [record.completed for record in result.records]
    assert completed == [True, True, True, False, False, False]
    assert [getattr(record, "stale") for record in result.records] == [0, 0, 12, 12, 12, 12]  # noqa: B009
    assert [getattr(record, "refused") for record in result.records] == [12, 24, 36, 36, 36, 36]  # noqa: B009
    assert "12 of 12 were left out at the end" in (tmp_path / "run" / "report.html").read_text()
    unbounded = play(tmp_path / "unbounded", "confined.check.threshold=-1000.0", "confined.tau=0", "rounds=4")
    assert all(record.completed for record in unbounded.records)


def test_the_steps_of_the_paper_cause_a_warning(tmp_path: Path) -> None:
    result = play(tmp_path / "run", "confined.step.kind=paper", "rounds=3")
    rates = [record.learning_rate for record in result.records]
    assert rates[0] > rates[1] > rates[2]
    assert "The falling steps of the paper add up to less" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("clients.weighting=samples", "clients.weighting: must be uniform"),
        ("confined.most=0.01", "confined.most: must not be below spread"),
        ("confined.check.kind=lucky", "confined.check.kind: should be"),
        ("aggregation.collusion=0.1", "cohort.privacy: a circle of 2 has 1 honest members if 1 collude"),
        ("aggregation.kind=plain", "confined.addition: must be secure"),
        ("aggregation.threat=active-server", "confined.addition: additive sharing has no defence"),
        ("aggregation.threat=active-server", "cohort.privacy: a circle of 2 has 1 honest members if 1 collude"),
    ],
)
def test_contradictory_settings_are_refused(override: str, complaint: str) -> None:
    settings = [*SMALL, "confined.addition=additive", "cohort.minimum=4", override]
    with pytest.raises(ConfigError, match=complaint):
        load_config(None, settings)


@pytest.mark.slow
def test_the_default_run_learns(tmp_path: Path) -> None:
    found = record_of("run", "--set", "training.algorithm=confined", "--out", tmp_path / "run")
    assert found["accuracy"] > 0.8
    assert found["extras"]["worst"] > 0.7
    assert found["extras"]["displacement"] > found["accuracy"] - 0.05


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("confined", "is itself a usable model, with a mean squared error of "),
        ("ditto", "The common model has a mean squared error of "),
        ("sdp", "a data-dependent estimate and not a guarantee"),
    ],
)
def test_regression_with_the_users_data_and_model(tmp_path: Path, algorithm: str, said: str) -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((3, 1))

    def examples(size: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((size, 3))
        return x.astype(np.float32), (x @ truth).astype(np.float32)

    result = train(
        lambda: torch.nn.Linear(3, 1),
        test_set=examples(50),
        clients={name: examples(20) for name in ("ann", "bob", "cid", "dee")},
        rounds=6,
        settings={"training.algorithm": algorithm, "training.epochs": 2, "training.evaluate_every": 1},
        out=tmp_path / "run",
        progress=False,
    )
    losses = [record.test_loss or 0.0 for record in result.records]
    assert losses[-1] < losses[0]
    assert result.accuracy is None
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert said in page
    if algorithm != "sdp":
        worst = getattr(result.records[-1], "worst")  # noqa: B009 - not declared
        assert worst >= losses[-1]
        assert f"the worst is {worst:.4g}" in page
