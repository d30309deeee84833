"""Data, models and arguments of the user that cannot work are refused with advice, and nothing is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.user_code import load_clients
from tests.support.user_runs import go, linear
from torch import nn

from coterie.api import train
from coterie.errors import ConfigError, InputError


def test_a_name_that_cannot_be_stored_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    clients, _ = load_clients()
    odd = {("\ud800" if number == 2 else name): data for number, (name, data) in enumerate(clients.items())}
    with pytest.raises(ConfigError, match=r"the name '\\ud800' is not valid Unicode"):
        go(tmp_path / "run", clients=odd)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("train_set", "clients"), [(None, 8), ((np.ones((9, 3)), np.zeros(9, int)), {})])
def test_examples_are_given_as_one_set_or_for_each_client_but_not_both(
    tmp_path: Path,
    train_set: Any,  # noqa: ANN401
    clients: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(ConfigError, match="either a train_set, which is divided, or the examples of each client"):
        train(linear, train_set, clients=clients, out=tmp_path / "run")


def test_a_path_in_place_of_clients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"clients is a number, or the examples of each client .* not 'data\.csv'"):
        train(linear, clients="data.csv", out=tmp_path / "run")


def test_settings_that_cannot_work_leave_no_folder(tmp_path: Path) -> None:
    for more, said in (
        ({"cohort": 7}, r"cohort\.size: 7 cannot be selected from clients\.count = 6"),
        ({"privacy": 5}, r"cohort\.privacy: a circle of 5 does not fit into cohort\.size = 4"),
        ({"model": nn.Linear(4, 3)}, "the model fails on the data, which has inputs of shape 3 \\(type float32\\): "),
    ):
        with pytest.raises(ConfigError, match=said):
            go(tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


def test_text_labels_and_too_many_labels_are_refused_with_advice(tmp_path: Path) -> None:
    clients, _ = load_clients()
    words = np.array(["cat", "dog", "emu"])
    said = "your data: labels are text, of 3 classes: cat, dog, emu. Map them to the numbers from 0 to 2, in the same"
    with pytest.raises(InputError, match=said):
        go(tmp_path / "run", clients={name: (x, words[y]) for name, (x, y) in clients.items()}, test_set=None)
    with pytest.raises(ConfigError, match=r"the model: it has 3 outputs, .* and the data has the label 11"):
        go(tmp_path / "run", clients={**clients, "site-0": (clients["site-0"][0], np.full(20, 11))}, test_set=None)


def test_labels_of_text_and_of_numbers_cannot_be_mixed(tmp_path: Path) -> None:
    clients, (test_x, test_y) = load_clients()
    words = np.array(["cat", "dog", "emu"])
    text = {name: (x, words[y]) for name, (x, y) in clients.items()}
    said = "labels are text, of 3 classes: cat, dog, emu, in 'site-0', and numbers in the test set. Map them to"
    with pytest.raises(InputError, match=said):
        go(tmp_path / "run", clients=text, test_set=(test_x, test_y))
    with pytest.raises(InputError, match="cat, dog, emu, in the test set, and numbers in 'site-0'"):
        go(tmp_path / "run", test_set=(test_x, words[test_y]))
    with pytest.raises(InputError, match="those of 'site-1' have the type object, such as None"):
        go(tmp_path / "run", clients={**clients, "site-1": (clients["site-1"][0], np.array([0, None] * 10))})


class Broken(torch.utils.data.Dataset[Any]):
    """A data set that cannot be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401
        raise KeyError(number)


FEW = (np.ones((20, 3)), np.zeros(20, int))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("a.csv", "site-0: expected examples, not 'a.csv'. Read the file first. Give a pair of arrays"),
        (None, "site-0: expected examples, not None. Give a pair of arrays"),
        (5, "site-0: expected examples, not 5. Give a pair of arrays"),
        ({"x": [1], "y": [0]}, "site-0: expected examples, not a dictionary with the keys 'x', 'y'. Give a pair"),
        (Broken(), "site-0: example 0 cannot be read: KeyError: 0"),
        ((np.ones((20, 3), complex), FEW[1]), "site-0: inputs are complex numbers"),
        (
            (np.ones((20, 4)), FEW[1]),
            r"'site-1' has inputs 3 \(float32\) and .*, and 'site-0' has inputs 4 \(float32\)",
        ),
    ],
)
def test_an_object_without_examples_is_refused_with_advice(tmp_path: Path, wrong: object, said: str) -> None:
    clients, _ = load_clients()
    with pytest.raises(InputError, match=said):
        go(tmp_path / "run", clients={**clients, "site-0": wrong})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"loss": "mse"}, "loss is a function of outputs and targets, such as .*, not 'mse'"),
        ({"loss": nn.CrossEntropyLoss}, r"loss is the class CrossEntropyLoss, .*: create it by CrossEntropyLoss\(\)"),
        ({"loss": lambda outputs, labels: None}, r"^the loss returned NoneType for outputs of shape \(5, 3\)"),
        ({"loss": lambda outputs, labels: 1 / 0}, "^the loss fails on .*: ZeroDivisionError: division by zero. A loss"),
        ({"loss": lambda outputs: outputs.mean()}, "^the loss fails on .*: TypeError: .* A loss takes two tensors"),
        ({"loss": nn.MSELoss()}, "^the loss fails on .*: RuntimeError: The size of tensor a"),
        ({"loss": lambda outputs, labels: torch.zeros(len(labels))}, "^the loss cannot be differentiated"),
        ({"model": lambda: 1 / 0}, "the function that makes the model failed: ZeroDivisionError: division by zero"),
        ({"test_set": (np.ones((2, 3)), np.array([0, 9]))}, "for the labels 0 to 2, and the test set has the label 9"),
        ({"clients": {"": FEW, "b": FEW}}, "the name of a client is a text that is not empty, .* not ''"),
        ({"clients": {1: FEW, 2: FEW}}, "the name of a client is a text that is not empty, .* not 1"),
        ({"clients": 2.5}, "clients is a number, or the examples of each client .*, not 2.5"),
        ({"clients": -3}, "clients should be at least 2, not -3"),
        ({"client_tests": 5}, "client_tests are the test examples of clients, by name or in a list, not 5"),
        ({"policy": "random"}, "'random' is no policy, .* as in settings="),
        ({"epsilon": True}, "epsilon is a number above 0, .* not True"),
        ({"settings": {"data": "digits"}}, "settings contain data, which the argument train_set or clients of train"),
        ({"settings": {"model.name": "mlp"}}, "settings contain model.name, which the argument model of train"),
        ({"out": ""}, "out is empty: give the path of a folder, or leave it out"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    clients, test_set = load_clients()
    arguments: dict[str, Any] = {"model": linear, "clients": clients, "test_set": test_set, "out": tmp_path / "run"}
    with pytest.raises((ConfigError, InputError), match=said):
        train(**{**arguments, **more}, rounds=1, progress=False)
    assert not (tmp_path / "run").exists()


def test_a_model_that_starts_with_nan_is_refused(tmp_path: Path) -> None:
    model = linear()
    nn.init.constant_(next(model.parameters()), float("nan"))
    with pytest.raises(
        ConfigError, match="the model: some of its parameters are NaN or infinite before the first round"
    ):
        go(tmp_path / "run", model=model)
