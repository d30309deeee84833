"""Policies of the user's own: how they are made, what they promise, and what they may not choose."""

from typing import Any

import numpy as np
import pytest
from tests.support.mine import FirstCircles, RoundRobin

from coterie.cohorts.circles import Circles, random_circles
from coterie.cohorts.policies import POLICIES, PolicySettings
from coterie.errors import ConfigError, InputError
from coterie.runs.config import RunConfig
from coterie.runs.config_file import make_config
from coterie.runs.selection import OwnPolicy, make_selection

MINE = "tests.support.mine"


def selection(name: str, own: Any = None, **more: Any) -> tuple[RunConfig, Circles, Any]:  # noqa: ANN401
    config = make_config({"clients.count": 12, "cohort.size": 6, "cohort.privacy": 3, "cohort.policy": name, **more})
    settings = PolicySettings(np.zeros(12), 6, config.cohort.privacy)
    return config, *make_selection(config, settings, np.random.default_rng(0), own)


def choose(policy: Any, available: Any = None) -> list[int]:  # noqa: ANN401
    everybody = np.ones(12, np.bool_) if available is None else available
    chosen: list[int] = policy.select(everybody, np.arange(12), np.random.default_rng(0)).tolist()
    return chosen


def test_a_class_gets_what_its_parameters_name() -> None:
    config, circles, policy = selection(f"{MINE}:RoundRobin")
    assert choose(policy) == [0, 1, 2, 3, 4, 5]
    assert circles.privacy == config.promised == 1
    config, circles, policy = selection(f"{MINE}:FirstCircles")
    assert circles.privacy == config.promised == 3
    assert choose(policy) == sorted(sum(list(circles)[:2], ()))


@pytest.mark.parametrize("name", POLICIES)
def test_the_table_promises_the_smallest_circle(name: str) -> None:
    config, circles, _ = selection(name)
    assert config.promised == circles.privacy


def test_an_object_keeps_together_what_it_says() -> None:
    _, circles, policy = selection("own", RoundRobin(4))
    assert choose(policy) == [0, 1, 2, 3]
    assert circles.privacy == 1
    kept = random_circles(12, 4, np.random.default_rng(1))
    assert selection("own", FirstCircles(kept))[1] is kept


@pytest.mark.parametrize("own", [None, object()])
def test_what_is_no_policy_is_refused(own: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=r"cohort\.policy: own gives no policy"):
        selection("own", own)


class Returns:
    """A policy that returns the same, whatever happens."""

    def __init__(self, chosen: Any) -> None:  # noqa: ANN401
        self.chosen = chosen

    def select(self, available: Any, frequencies: Any, rng: Any) -> Any:  # noqa: ANN401
        available[:] = True
        return self.chosen


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ([1, 1], "each of them once"),
        ([0.5], "numbers of the clients"),
        ([[1, 2]], "numbers of the clients"),
        ([-1], "not available"),
        ([12], "not available"),
        ([0, 3], "not available"),
    ],
)
def test_only_clients_that_are_available_can_be_chosen(chosen: Any, said: str) -> None:  # noqa: ANN401
    available = np.arange(12) != 3
    with pytest.raises(InputError, match=said):
        choose(OwnPolicy(Returns(chosen), 12), available)
    assert not available[3]  # a policy works on a copy


def test_nobody_may_be_chosen_and_order_does_not_matter() -> None:
    assert choose(OwnPolicy(Returns([]), 12)) == []
    assert choose(OwnPolicy(Returns((5, 2)), 12)) == [2, 5]
