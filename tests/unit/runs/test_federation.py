"""The federation of a run: which client holds which examples, what is refused, and fingerprints of data and models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.learning import BatchNormNet
from torch import nn

from coterie.errors import ConfigError
from coterie.runs.engine.federation import Federation, find_federation, make_federation
from coterie.runs.records.yardstick import ACCURACY, LOSS, SQUARED_ERROR
from coterie.runs.settings.toml import load_config, make_config
from coterie.training import flatten
from coterie.training.data.datasets import Dataset, load
from coterie.training.data.user_data import from_clients, from_torch
from coterie.training.local import ArrayData
from coterie.training.models import build

MINE = "tests.support.user_code"


def example(x: Any = None, y: Any = None, **more: Any) -> Dataset:  # noqa: ANN401
    inputs = np.arange(20, dtype=np.float32).reshape(4, 5) if x is None else x
    return from_torch((inputs, np.array([0, 1, 2, 1]) if y is None else y), (inputs[:1], np.array([2])), **more)


def federation(dataset: Dataset | None = None, model: nn.Module | None = None, count: int = 2) -> Federation:
    config = make_config({"clients.count": count, "cohort.size": count, "partition.kind": "iid"})
    return make_federation(config, dataset or example(), model or nn.Linear(5, 3))


def test_clients_keep_their_given_examples() -> None:
    brought = {"ann": (np.ones((3, 5)), np.zeros(3, int)), "bob": (np.ones((1, 5)), np.array([2]))}
    found = federation(from_clients(brought))
    assert {name: part.tolist() for name, part in found.parts.items()} == {"ann": [0, 1, 2], "bob": [3]}
    with pytest.raises(ConfigError, match=r"clients\.count: must be 2, who come with the data, not 3"):
        federation(from_clients(brought), count=3)


@pytest.mark.parametrize(
    ("count", "partition", "said"),
    [
        (5, "iid", r"clients\.count = 5, partition\.kind = iid: 4 examples cannot be divided into 5 parts"),
        (3, "label-shards", r"clients\.count = 3, partition\.kind = label-shards: 4 examples cannot be divided into 6"),
    ],
)
def test_more_parts_than_examples_are_refused_by_name(count: int, partition: str, said: str) -> None:
    config = make_config({"clients.count": count, "cohort.size": count, "partition.kind": partition})
    with pytest.raises(ConfigError, match=said):
        make_federation(config, example(), nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("dataset", "model", "said"),
    [
        (example(), nn.Linear(4, 3), r"model\.name: mlp fails on .*, which has inputs of shape 5 "),
        (
            example(),
            nn.Linear(5, 2),
            "mlp: it has 2 outputs, for the labels 0 to 1, and the data has the label 2",
        ),
        (example(np.zeros((4, 5), int)), nn.Linear(5, 3), r"inputs of shape 5 \(type int64\)"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(dataset: Dataset, model: nn.Module, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        federation(dataset, model)


def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs().mean(1)


def test_the_kind_of_targets_decides_the_metric() -> None:
    numbers = from_torch((np.ones((4, 5)), np.arange(4.0) / 4), (np.ones((1, 5)), np.array([0.5])))
    config = make_config({"clients.count": 2, "cohort.size": 2, "partition.kind": "iid"})
    assert federation().yardstick == ACCURACY
    assert federation(numbers, nn.Linear(5, 1)).yardstick == SQUARED_ERROR
    assert make_federation(config, numbers, nn.Linear(5, 1), absolute).yardstick == LOSS


def test_a_model_is_scored_on_the_series_of_its_client() -> None:
    data = load("energy", regions="AEP,DUQ")
    found = federation(data, build("lstm", data.input_shape, 1, seed=0))
    state = flatten.read(found.problem.model)
    each, both = [found.score(name, state) for name in ("AEP", "DUQ")], found.score("global", state)
    assert [score.samples for score in (*each, both)] == [312, 312, 624]
    assert both.loss == pytest.approx(sum(score.loss for score in each) / 2)
    assert both.error == pytest.approx(sum(score.error or 0 for score in each) / 2)
    assert (each[0].error or 0) > 5 * (each[1].error or 0)  # AEP is the larger, and both are scaled alike
    assert (found.yardstick.name, found.yardstick.unit) == ("mean squared error", "MW")
    assert list(found.yardstick.rules) == ["previous hour", "previous day", "previous week"]


def test_settings_name_data_and_models_of_the_user() -> None:
    config = load_config(
        None, [f"data={MINE}:load_clients", f"model={MINE}:make_model", "clients.count=6", "cohort.size=4"]
    )
    found = find_federation(config)
    assert list(found.parts) == [f"site-{number}" for number in range(6)]
    assert len(found.test) == 120
    layer = found.problem.model[1]  # type: ignore[index]
    assert (layer.in_features, layer.out_features) == (3, 3)
    again = find_federation(config)
    assert torch.equal(layer.weight, again.problem.model[1].weight)  # type: ignore[index]
    fewer = config.model_copy(update={"data": config.data.model_copy(update={"options": {"count": 5}})})
    with pytest.raises(ConfigError, match=r"clients\.count: must be 5"):
        find_federation(fewer)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (f"model={MINE}:make_nothing", "must be a torch module, or a function that makes one, not NoneType"),
        (f"data.name={MINE}:fail", r"data\.name: tests\.support\.user_code:fail failed: OSError: the tape is torn"),
        (f"data={{name='{MINE}:load_clients',options={{coutn=5}}}}", "unexpected keyword argument 'coutn'"),
        ("data=own", "gets them from a Python program"),
        ("cohort.policy=own", "gets them from a Python program"),
    ],
)
def test_data_and_models_of_the_user_that_are_missing_or_fail_are_named(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_federation(load_config(None, [override]))


# ------------------------------------------------------------------------------------------- fingerprints


def test_a_fingerprint_depends_on_values_not_on_objects() -> None:
    assert federation().fingerprints == federation(example(), nn.Linear(5, 3)).fingerprints
    assert federation().fingerprints.keys() == {"data", "model"}


def other_data() -> dict[str, Federation]:
    one = federation()
    x = example().train_x.copy()
    x[3, 4] += 1
    swapped = dict(zip(one.parts, reversed(list(one.parts.values())), strict=True))
    return {
        "an input": federation(example(x)),
        "a target": federation(example(y=np.array([0, 1, 2, 2]))),
        "a test set": replace(one, test=ArrayData(one.test.x + 1, one.test.y)),
        "who holds what": replace(one, parts=swapped),
        "a name": replace(one, parts={f"{name}'": part for name, part in one.parts.items()}),
    }


@pytest.mark.parametrize("what", other_data())
def test_other_data_has_another_fingerprint(what: str) -> None:
    before, after = federation().fingerprints, other_data()[what].fingerprints
    assert before["data"] != after["data"]
    assert before["model"] == after["model"]


def frozen(value: float) -> nn.Module:
    model = BatchNormNet()
    with torch.no_grad():
        model.last.bias.fill_(value)
    return model


class Tied(nn.Module):
    """A model that uses one tensor in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.second(self.first(x)))
        return scores


def test_a_model_is_named_by_its_layers_and_frozen_arrays() -> None:
    def of(model: nn.Module) -> str:
        return federation(model=model).fingerprints["model"]

    assert of(frozen(0.5)) == of(frozen(0.5))  # what is learnt began at random, and differs
    assert of(frozen(0.5)) != of(frozen(0.75))
    assert of(Tied()) == of(Tied())
    several = [nn.Sequential(nn.Linear(5, 3), layer) for layer in (nn.ReLU(), nn.Tanh(), nn.Dropout(0.1))]
    assert len({of(model) for model in (nn.Linear(5, 3), nn.Linear(5, 4), *several)}) == 5
