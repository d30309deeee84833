"""Metrics, against definitions written out, and in a run."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("torch", reason="training needs coterie[train]")
from coterie.errors import ConfigError
from coterie.runs.engine.run import TrainingRun
from coterie.runs.settings.toml import make_config
from coterie.training.metrics import METRICS, Answers, Outputs

SMALL = {
    "rounds": 3,
    "clients.count": 8,
    "cohort.size": 4,
    "model.name": "softmax-regression",
    "training.epochs": 1,
    "training.executor": "processes",
    "training.workers": 0,
    "aggregation.kind": "plain",
}


@st.composite
def answers(draw: st.DrawFn) -> tuple[Outputs, Answers]:
    """Outputs of a model with ties, and labels."""
    examples, classes = draw(st.integers(1, 20)), draw(st.integers(2, 5))
    outputs = draw(arrays(np.float32, (examples, classes), elements=st.integers(-2, 2).map(float)))
    return outputs, draw(arrays(np.int64, examples, elements=st.integers(0, classes - 1)))


@given(answers())
def test_accuracies_are_those_of_their_definitions(case: tuple[Outputs, Answers]) -> None:
    outputs, labels = case
    ranked = [[one for _, one in sorted((-value, one) for one, value in enumerate(row))] for row in outputs.tolist()]
    top3 = [label in order[:3] for label, order in zip(labels, ranked, strict=True)]
    assert METRICS["top3_accuracy"].compute(outputs, labels) == pytest.approx(np.mean(top3))
    recalls = [
        np.mean([order[0] == label for order, own in zip(ranked, labels, strict=True) if own == label])
        for label in set(labels.tolist())
    ]
    assert METRICS["balanced_accuracy"].compute(outputs, labels) == pytest.approx(np.mean(recalls))


def test_the_error_of_numbers_is_their_mean_distance() -> None:
    targets = np.array([[1.0], [2.0], [4.0]], np.float32)
    assert METRICS["absolute_error"].compute(targets + np.array([[0.5], [-1.0], [0.0]], np.float32), targets) == 0.5


def test_a_run_records_what_the_model_scores(tmp_path: Path) -> None:
    """A run with metrics is the same run with further columns."""
    recorded = []
    for metrics in [], ["top3_accuracy", "balanced_accuracy"]:
        folder = tmp_path / f"run-{len(metrics)}"
        config = make_config({**SMALL, "training.metrics": metrics})
        result = TrainingRun.begin(folder, config).play()
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        recorded.append([{key: value for key, value in row.items() if "seconds" not in key} for row in rows])
    plain, further = recorded
    last = result.records[-1]
    assert last.accuracy is not None
    assert further[-1]["top3_accuracy"] > last.accuracy > 0
    assert {**result.summary.extras} == {name: further[-1][name] for name in ("top3_accuracy", "balanced_accuracy")}
    for row in further:
        del row["top3_accuracy"], row["balanced_accuracy"]
    assert plain == further


def test_a_metric_for_other_targets_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    config = make_config({**SMALL, "training.metrics": ["absolute_error"]})
    with pytest.raises(ConfigError, match="absolute_error is for numbers, and the targets of this data are labels"):
        TrainingRun.begin(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()
