"""Scores of clients: on their own tests, on examples kept for testing, or on common tests weighted by their labels."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from tests.support.interruptions import stored_model
from tests.support.user_code import load_clients
from torch import nn

from coterie.api import train
from coterie.errors import ConfigError, InputError
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.records.client_scores import Basis
from coterie.runs.report.words import in_words
from coterie.runs.settings.toml import load_config
from coterie.training.data.user_data import from_clients

RNG = np.random.default_rng(5)
TESTS = {
    f"site-{n}": (3 * np.eye(3)[np.arange(9) % 3] + RNG.standard_normal((9, 3)), np.arange(9) % 3) for n in range(6)
}


def go(folder: Path, **more: Any) -> RunResult:  # noqa: ANN401 - any argument of train
    clients, _ = load_clients()
    given = {"clients": clients, "rounds": 3, "cohort": 4, "progress": False, **more}
    return train(lambda: nn.Linear(3, 3), out=folder, **given)


def rows(result: RunResult) -> dict[str, dict[str, str]]:
    with (result.folder / "clients.csv").open(newline="") as file:
        return {row["client"]: row for row in csv.DictReader(file)}


def share_right(model: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    outputs = x.astype(np.float32) @ model.state_dict()["weight"].numpy().T + model.state_dict()["bias"].numpy()
    return float((outputs.argmax(1) == y).mean())


def test_every_client_is_scored_on_its_own_tests_by_its_own_model_and_the_common_one(tmp_path: Path) -> None:
    result = go(
        tmp_path / "run", client_tests=TESTS, algorithm="ditto", settings={"training.metrics": ["top3_accuracy"]}
    )
    found = rows(result)
    assert list(found) == [f"site-{n}" for n in range(6)]
    for name, (x, y) in TESTS.items():
        row = found[name]
        assert (row["train_examples"], row["test_examples"]) == ("20", "9")
        assert float(row["own_accuracy"]) == pytest.approx(share_right(result.models[name], x, y))
        assert float(row["global_accuracy"]) == pytest.approx(share_right(result.models["global"], x, y))
        assert row["own_top3_accuracy"] == row["global_top3_accuracy"] == "1.0"
    mean = np.mean([float(row["own_accuracy"]) for row in found.values()])
    assert result.accuracy == pytest.approx(mean)  # in every round, models are judged by their owners' tests
    assert result.summary.owners_score == pytest.approx(mean)
    scores = result.summary.client_scores
    assert scores is not None
    assert scores.basis is Basis.TESTS
    page = (tmp_path / "run" / "report.html").read_text()
    worst = min(found, key=lambda name: (float(found[name]["own_accuracy"]), name))
    assert f"the worst: {worst}" in page
    assert "on the owners&#39; data after 3 rounds" in page or "on the owners' data after 3 rounds" in page
    assert "plot-scores" in page


def test_the_common_model_is_judged_by_the_test_set_or_by_all_clients_tests_together(tmp_path: Path) -> None:
    together = go(tmp_path / "together", client_tests=list(TESTS.values()))
    x, y = (np.concatenate(parts) for parts in zip(*TESTS.values(), strict=True))
    assert together.accuracy == pytest.approx(share_right(together.model, x, y))
    few = (x[:3], (y[:3] + 1) % 3)  # wrong answers, which show which tests were used
    apart = go(tmp_path / "apart", client_tests=TESTS, test_set=few)
    assert apart.accuracy == pytest.approx(share_right(apart.model, *few))
    assert [float(row["global_accuracy"]) for row in rows(apart).values()] == [
        pytest.approx(share_right(apart.model, *tests)) for tests in TESTS.values()
    ]
    plain = go(tmp_path / "plain", test_set=few)
    files = [stored_model(result.folder) for result in (together, apart, plain)]
    assert files[0] == files[1] == files[2]  # tests do not change the training


def test_without_own_tests_the_common_tests_are_weighted_by_the_labels_of_the_client(tmp_path: Path) -> None:
    clients, test = load_clients()
    only = {}
    for number, (name, (x, y)) in enumerate(clients.items()):  # one label, and one example of the next
        chosen = [*np.flatnonzero(y == number % 3), np.flatnonzero(y == (number + 1) % 3)[0]]
        only[name] = x[chosen], y[chosen]
    result = go(tmp_path / "run", clients=only, test_set=test, algorithm="local-only")
    x, y = test
    for name, row in rows(result).items():
        labels, counts = np.unique(only[name][1], return_counts=True)
        right = [share_right(result.models[name], x[y == label], y[y == label]) for label in labels]
        assert float(row["own_accuracy"]) == pytest.approx(np.average(right, weights=counts))
    owners = result.summary.owners_score
    assert owners is not None
    assert result.accuracy is not None
    assert owners > result.accuracy + 0.1  # on the test examples of all clients
    words = dict(in_words(result.summary))
    assert f"has {owners:.1%} accuracy on its owner's test examples, on average" in words["Model"]
    assert f"On the test examples of everybody it is {result.accuracy:.1%}" in words["Model"]
    assert "labels in the proportions of the client's own training examples" in words["Scores"]
    assert words["Clients"].startswith("On the test examples of everybody, from client to client")


SMALL = (
    *("rounds=2", "clients.count=8", "cohort.size=4", "model=softmax-regression", "training.epochs=1"),
    *("training.executor=processes", "training.workers=0", "aggregation.threads=1"),
)


def test_a_share_of_each_clients_examples_is_kept_for_testing(tmp_path: Path) -> None:
    runs = {}
    for share in (0.0, 0.25):
        run = TrainingRun.begin(tmp_path / str(share), load_config(None, [*SMALL, f"clients.holdout={share}"]))
        runs[share] = run._built.federation
        result = run.play()
    whole, kept = runs[0.0], runs[0.25]
    assert kept.basis is Basis.HELD_OUT
    for name, part in kept.parts.items():
        everything, held = whole.parts[name], kept.tests(name)
        assert held.size == round(0.25 * everything.size)
        assert set(part) < set(everything)
        left = sorted(set(everything) - set(part))
        assert np.array_equal(kept.test.x[held], whole.problem.data.x[left])  # type: ignore[attr-defined]
        assert np.array_equal(kept.test.y[held], whole.problem.data.y[left])  # type: ignore[attr-defined]
    assert np.array_equal(kept.tests("global"), np.arange(len(whole.test)))
    assert "examples of each client that it keeps for testing" in dict(in_words(result.summary))["Scores"]
    assert kept.fingerprints["data"] != whole.fingerprints["data"]


def test_with_noise_no_client_is_scored(tmp_path: Path) -> None:
    for settings in ({}, {"clients.holdout": 0.2}):
        folder = tmp_path / str(len(settings))
        result = go(folder, test_set=load_clients()[1], epsilon=8, settings=settings)
        assert result.accuracy is not None
        assert result.summary.client_scores is None
        assert not (folder / "clients.csv").exists()


@pytest.mark.parametrize("more", [{"client_tests": TESTS}, {"settings": {"clients.holdout": 0.2}}])
def test_with_noise_no_score_is_on_examples_of_the_clients(tmp_path: Path, more: dict[str, Any]) -> None:
    """Epsilon protects these examples, and a score on them has no noise."""
    result = go(tmp_path / "run", epsilon=8, **more)
    assert all(record.accuracy is record.test_loss is None for record in result.records)
    assert (
        "there are no test examples for all, and scores on clients' own would show"
        in dict(in_words(result.summary))["Model"]
    )
    assert go(tmp_path / "open", **more).accuracy is not None
    stopping = {"stopping.patience": 1, **more.get("settings", {})}
    with pytest.raises(ConfigError, match="with noise, those of clients are not used; give a test_set"):
        go(tmp_path / "stop", epsilon=8, **{**more, "settings": stopping})


def test_regressions_without_tests_of_their_own_are_evaluated_on_the_common_ones(tmp_path: Path) -> None:
    clients, (x, y) = load_clients()
    numbers = {name: (given, labels / 7) for name, (given, labels) in clients.items()}
    settings = {"training.learning_rate": 0.01}
    common: dict[str, Any] = {"clients": numbers, "test_set": (x, y / 7), "settings": settings}
    local = train(
        lambda: nn.Linear(3, 1), algorithm="local-only", rounds=1, out=tmp_path / "a", progress=False, **common
    )
    assert local.summary.owners_score is None
    scores = local.summary.client_scores
    assert scores is not None
    assert scores.basis is Basis.COMMON
    shared = train(lambda: nn.Linear(3, 1), rounds=1, cohort=4, out=tmp_path / "b", **common)
    assert shared.summary.client_scores is None  # all would be the same


def test_a_metric_that_fails_on_the_examples_of_one_client_is_left_out_there(tmp_path: Path) -> None:
    def both(outputs: np.ndarray, labels: np.ndarray) -> float:
        if len(set(labels.tolist())) < 2:
            raise ValueError("one class only")
        return 0.5

    one_class = {**TESTS, "site-0": (TESTS["site-0"][0], np.zeros(9, int))}
    found = rows(go(tmp_path / "run", client_tests=one_class, metric=both))
    assert [row["global_both"] for row in found.values()] == ["", *["0.5"] * 5]


def test_some_clients_may_lack_tests_and_a_resumed_run_needs_the_same_tests(tmp_path: Path) -> None:
    some = {name: TESTS[name] for name in ("site-1", "site-4")}
    first = go(tmp_path / "run", client_tests=some, test_set=load_clients()[1])
    assert {name: row["test_examples"] for name, row in rows(first).items()}["site-1"] == "9"
    again = go(tmp_path / "run", client_tests=some, test_set=load_clients()[1], rounds=4, resume=True)
    assert again.records[:3] == first.records
    with pytest.raises(ConfigError, match="the data differs from that of the run"):
        go(tmp_path / "run", client_tests=TESTS, test_set=load_clients()[1], rounds=4, resume=True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"client_tests": {"site-9": TESTS["site-0"]}}, "client_tests names 'site-9', which is no client"),
        ({"client_tests": [TESTS["site-0"]]}, "tests of 1 clients, and there are 6"),
        ({"client_tests": {"site-0": (np.zeros((2, 4)), np.zeros(2, int))}}, "differ in shape"),
        ({"client_tests": TESTS, "settings": {"clients.holdout": 0.2}}, "clients.holdout: must be 0, because"),
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, InputError), match=said):
        go(tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


def test_clients_that_share_examples_cannot_keep_some(tmp_path: Path) -> None:
    x, y = load_clients()[1]
    with pytest.raises(ConfigError, match=r"clients.holdout: must be 0 with partition.kind = sampled"):
        train(
            lambda: nn.Linear(3, 3), (x, y), clients=6, out=tmp_path / "run", progress=False,
            settings={"partition.kind": "sampled", "clients.holdout": 0.2},
        )  # fmt: skip
    with pytest.raises(ConfigError, match="client_tests are tests of clients that bring their examples"):
        train(lambda: nn.Linear(3, 3), (x, y), clients=6, client_tests=TESTS, out=tmp_path / "run", progress=False)


def test_tests_of_clients_are_numbered_behind_those_of_all() -> None:
    clients, (x, y) = load_clients()
    data = from_clients(clients, (x[:4], y[:4]), client_tests={"site-2": (x[4:6], y[4:6]), "site-0": (x[6:7], y[6:7])})
    assert data.client_tests is not None
    assert {name: rows.tolist() for name, rows in data.client_tests.items()} == {"site-0": [4], "site-2": [5, 6]}
    assert np.allclose(data.test_x, x[[0, 1, 2, 3, 6, 4, 5]])
