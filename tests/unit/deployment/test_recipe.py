from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.deployment.recipe import STATISTICS, VARYING, Metric, RosterRecipe, to_metrics
from coterie.errors import ConfigError

CHANGES: dict[str, dict[str, Any]] = {
    "weighted_by_key": {"weight": "batches"},
    "most_examples": {"most_weight": 9_999},
    "precision": {"precision": 25},
    "clip": {"clip": np.nextafter(1.0, 2)},
    "clips": {"clips": STATISTICS[:2]},
    "train_metrics": {"train_metrics": (Metric("loss", 0, 1),)},
    "evaluate_metrics": {"evaluate_metrics": (Metric("loss", 0, 1),)},
    "varying": {"varying": (*VARYING, "lr")},
}


@pytest.mark.parametrize(
    "wrong",
    [{"clip": 0.0}, {"clip": float("nan")}, {"clips": (("*", -1.0),)}, {"precision": 60}, {"most_weight": 2**40},
     {"most_weight": 0}, {"train_metrics": (Metric("loss", 1, 1),)}],
)  # fmt: skip
def test_recipes_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RosterRecipe(**wrong)


@pytest.mark.parametrize(
    "written",
    [
        {"clip": 2},
        {"clip": np.float64(2)},
        {"clips": ((np.str_("layer*"), 10),)},
        {"counter_clip": 5},
        {"weight": np.str_("count"), "train_metrics": (Metric(np.str_("loss"), 0, 10),)},
        {"varying": ("b", "a", "b")},
    ],
)
def test_a_recipe_has_the_same_bytes_however_its_numbers_are_written(written: dict[str, Any]) -> None:
    recipe = RosterRecipe(**written)
    assert RosterRecipe.from_bytes(recipe.to_bytes()) == recipe
    assert RosterRecipe.from_bytes(recipe.to_bytes()).to_bytes() == recipe.to_bytes()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_recipe_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        RosterRecipe.from_bytes(data)


def test_a_recipe_in_another_encoding_is_refused() -> None:
    fields = msgspec.msgpack.decode(RosterRecipe(varying=("a", "b")).to_bytes())
    assert RosterRecipe.from_bytes(msgspec.msgpack.encode(fields)) == RosterRecipe(varying=("a", "b"))
    with pytest.raises(ConfigError, match="would write it differently"):
        RosterRecipe.from_bytes(msgspec.msgpack.encode([*fields[:-1], ["b", "a"]]))
    with pytest.raises(ConfigError):
        RosterRecipe.from_bytes(msgspec.msgpack.encode([2, *fields[1:]]))


@pytest.mark.parametrize("name", CHANGES)
def test_the_error_names_a_changed_setting_with_both_values(name: str) -> None:
    founded, asked = RosterRecipe(), RosterRecipe(**CHANGES[name])
    founded.check_kept(RosterRecipe())
    with pytest.raises(ConfigError) as error:
        founded.check_kept(asked)
    said = str(error.value)
    assert said.startswith(f"{name} is {asked.settings()[name]!r}")
    assert f"founded with {founded.settings()[name]!r}" in said
    assert f"set {name} back, or found another population: a new COTERIE_HOME" in said


def test_metrics_are_in_the_order_of_their_names() -> None:
    assert to_metrics({"b": (0, 1), "a": (-1, 1)}) == (Metric("a", -1, 1), Metric("b", 0, 1))
