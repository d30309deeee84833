"""Policies of the user: how they are made, what they promise, and which selections are refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.user_code import FirstCircles, RoundRobin

from coterie.cohorts.circles import Circles, random_circles, single_circles
from coterie.cohorts.policies import PolicySettings
from coterie.errors import ConfigError, InputError, SplitCircle
from coterie.runs.engine.cohorts import OwnPolicy, make_selection
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import make_config

MINE = "tests.support.user_code"
NAMES = [f"client-{number:02}" for number in range(12)]


def selection(name: str, own: Any = None, **more: Any) -> tuple[RunConfig, Circles, Any]:  # noqa: ANN401
    config = make_config({"clients.count": 12, "cohort.size": 6, "cohort.privacy": 3, "cohort.policy": name, **more})
    settings = PolicySettings(np.zeros(12), 6, config.cohort.privacy)
    return config, *make_selection(config, settings, np.random.default_rng(0), own)


def choose(policy: Any, available: Any = None) -> list[int]:  # noqa: ANN401
    everybody = np.ones(12, np.bool_) if available is None else available
    chosen: list[int] = policy.select(everybody, np.arange(12), np.random.default_rng(0)).tolist()
    return chosen


def test_a_class_gets_what_its_parameters_name() -> None:
    _, circles, policy = selection(f"{MINE}:RoundRobin")
    assert choose(policy) == [0, 1, 2, 3, 4, 5]
    assert circles.privacy == 1
    _, circles, policy = selection(f"{MINE}:FirstCircles")
    assert circles.privacy == 3
    assert choose(policy) == sorted(sum(list(circles)[:2], ()))


def test_a_policy_object_keeps_its_declared_circles_together() -> None:
    _, circles, policy = selection("own", RoundRobin(4))
    assert choose(policy) == [0, 1, 2, 3]
    assert circles.privacy == 1
    kept = random_circles(12, 4, np.random.default_rng(1))
    assert list(selection("own", FirstCircles(kept))[1]) == list(kept)


@pytest.mark.parametrize("own", [None, object()])
def test_an_object_that_is_no_policy_is_refused(own: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=r"cohort\.policy: .* is no policy, which is an object with a method select"):
        selection("own", own)


class Returns:
    """A policy that always returns the same selection."""

    def __init__(self, chosen: Any) -> None:  # noqa: ANN401
        self.chosen = chosen

    def select(self, available: Any, frequencies: Any, rng: Any) -> Any:  # noqa: ANN401
        available[:] = True
        return self.chosen


def unbound(chosen: Any) -> OwnPolicy:  # noqa: ANN401
    """Return a policy without circles."""
    return OwnPolicy(Returns(chosen), 12, single_circles(12), NAMES)


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
        choose(unbound(chosen), available)
    assert not available[3]  # a policy works on a copy


def test_a_selection_may_be_empty_and_in_any_order() -> None:
    assert choose(unbound([])) == []
    assert choose(unbound((5, 2))) == [2, 5]


# ------------------------------------------------------------------------------------------- circles


class Keeps(Returns):
    """A policy that declares circles."""

    def __init__(self, circles: Any, chosen: Any = ()) -> None:  # noqa: ANN401
        super().__init__(list(chosen))
        self.circles = circles


PAIRS = [[0, 7], [1, 2, 3], [4, 5], [6, 8, 9], [10, 11]]


def test_lists_of_client_numbers_are_circles() -> None:
    circles = selection("own", Keeps(PAIRS))[1]
    assert [sorted(circle) for circle in circles] == PAIRS
    assert circles.privacy == 2
    assert selection("own", Keeps([np.array(circle) for circle in PAIRS]))[1].privacy == 2
    assert selection("own", Keeps(None))[1].privacy == 1


@pytest.mark.parametrize(
    ("circles", "said"),
    [
        ([[0, 1], [2, 3]], r"exactly once \(missing: 4, 5, 6, 7, 8\)"),
        ([*PAIRS, [0]], r"exactly once \(more than once: 0\)"),
        ([[*PAIRS[0], 12], *PAIRS[1:]], r"exactly once \(no client: 12\)"),
        ([[-1, *PAIRS[0]], *PAIRS[1:]], r"exactly once \(no client: -1\)"),
        ([*PAIRS, []], "none of them empty; it has list"),
        ([[0.5]], "a list of lists of client numbers"),
        (list(range(12)), "a list of lists of client numbers"),
        ("circles", "it has str"),
        (3, "it has int"),
    ],
)
def test_invalid_circles_are_refused(circles: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=rf"^cohort\.policy: Keeps: .*{said}"):
        selection("own", Keeps(circles))


def test_a_selection_that_splits_a_circle_is_refused_by_name() -> None:
    config = make_config({"clients.count": 12, "cohort.size": 6, "cohort.policy": "own"})
    policy = make_selection(
        config, PolicySettings(np.zeros(12), 6), np.random.default_rng(0), Keeps(PAIRS, [0, 7, 2]), NAMES
    )[1]
    with pytest.raises(SplitCircle, match=r"Keeps split circle 1.*without client-01, client-03\. A circle") as refused:
        choose(policy)
    assert (refused.value.policy, refused.value.circle) == ("Keeps", 1)
    assert refused.value.missing == ("client-01", "client-03")


@given(st.data())
def test_only_unions_of_circles_can_be_selected(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    circles = random_circles(
        count, data.draw(st.integers(1, count)), np.random.default_rng(data.draw(st.integers(0, 99)))
    )
    chosen = data.draw(st.sets(st.integers(0, count - 1)))
    whole = all(chosen.issuperset(circle) or chosen.isdisjoint(circle) for circle in circles)
    policy = OwnPolicy(Returns(sorted(chosen)), count, circles, [str(number) for number in range(count)])
    everybody, rng = np.ones(count, np.bool_), np.random.default_rng(0)
    if whole:
        assert policy.select(everybody, np.zeros(count, np.int64), rng).tolist() == sorted(chosen)
    else:
        with pytest.raises(SplitCircle) as refused:
            policy.select(everybody, np.zeros(count, np.int64), rng)
        circle = {str(member) for member in list(circles)[refused.value.circle]}
        assert circle - {str(member) for member in chosen} == set(refused.value.missing) != circle


def test_a_policy_that_chooses_more_clients_than_declared_is_refused() -> None:
    """The ring is made for the declared number of clients; a sum of more could overflow."""
    with pytest.raises(InputError, match="Returns chose 3 clients; it declares that it chooses at most 2"):
        choose(OwnPolicy(Returns([0, 1, 2]), 2, single_circles(12), NAMES))


def test_the_circles_that_a_class_declares_count() -> None:
    _, circles, _ = selection(f"{MINE}:Neighbours")
    assert circles.privacy == 2


class Changing:
    """A policy that changes the circles it declared, in place, before it splits one of them."""

    def __init__(self, circles: Circles) -> None:
        self.circles = circles

    def select(self, *_: object) -> list[int]:
        self.circles.members[[2, 3]] = self.circles.members[[3, 2]]
        return [int(client) for client in self.circles.members[:3]]


@pytest.mark.parametrize("name", ["own", f"{__name__}:Changing"])
def test_circles_are_the_declared_ones(name: str) -> None:
    declared = Changing(Circles.of([range(start, start + 3) for start in (0, 3, 6, 9)]))
    _, _, policy = selection(name, declared if name == "own" else None)
    with pytest.raises(SplitCircle):
        choose(policy)


def test_a_selection_of_several_lengths_is_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"cohort\.policy: a policy returns the numbers"):
        choose(selection("own", Returns([[0], [1, 2]]))[2])
