"""Policies: rules that every policy of the table follows, and what each one promises."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cohorts.availability import mixed_dropout
from coterie.cohorts.circles import Circles, Indices, Mask, partition_circles, random_circles
from coterie.cohorts.declaration import declared_circles
from coterie.cohorts.policies import (
    POLICIES,
    BalancedHalves,
    Iid,
    Mode,
    MultiRound,
    PolicyKind,
    PolicySettings,
    Random,
    WeightedRandom,
    largest_cohort,
    make_policy,
    simulate,
)
from coterie.errors import ConfigError, InputError

seeds = st.integers(0, 2**32 - 1)
MODES: tuple[Mode, ...] = ("uniform", "fair", "fairest")


def strong_privacy(participation: Mask) -> int:
    columns = participation[:, participation.any(axis=0)]
    return int(np.unique(columns, axis=1, return_counts=True)[1].min(initial=participation.shape[1]))


@dataclass(frozen=True)
class Moment:
    """The arguments of a selection."""

    available: Mask
    frequencies: Indices
    rng: np.random.Generator


@st.composite
def moments(draw: st.DrawFn, population: int = 24) -> Moment:
    missing, rng = draw(st.integers(0, population)), np.random.default_rng(draw(seeds))
    available = rng.permutation(population) >= missing
    return Moment(available, rng.integers(0, 5, population), rng)


@given(moments(), st.sampled_from(list(POLICIES)), st.sampled_from([2, 4, 6]), seeds)
def test_every_policy_selects_available_clients_in_order(now: Moment, name: str, cohort: int, seed: int) -> None:
    policy = make_policy(name, PolicySettings(np.full(24, 0.5), cohort, privacy=2), np.random.default_rng(seed))
    selected = policy.select(now.available, now.frequencies, now.rng)
    assert selected.dtype == np.int64
    assert sorted(set(selected.tolist())) == selected.tolist()
    assert now.available[selected].all()
    smallest, largest = getattr(policy, "smallest", 0), largest_cohort(policy, 24)
    assert selected.size == 0 or smallest <= selected.size <= largest


@given(moments(), st.sampled_from(["multi-round", "random", "weighted-random", "partition", "balanced-halves"]))
def test_a_round_has_k_clients_or_is_skipped(now: Moment, name: str) -> None:
    policy = make_policy(name, PolicySettings(np.full(24, 0.5), 4, privacy=2), now.rng)
    assert policy.select(now.available, now.frequencies, now.rng).size in (0, 4)


@given(moments(), st.sampled_from(list(POLICIES)), seeds)
def test_selection_depends_on_its_arguments_only(now: Moment, name: str, seed: int) -> None:
    policy = make_policy(name, PolicySettings(np.full(24, 0.5), 4, privacy=2), np.random.default_rng(seed))
    once, again = (policy.select(now.available, now.frequencies, np.random.default_rng(seed)) for _ in range(2))
    assert once.tolist() == again.tolist()


@given(moments(), st.integers(1, 6), st.integers(0, 12), st.sampled_from(MODES), seeds)
def test_multi_round_takes_whole_circles_up_to_the_cohort_or_skips(
    now: Moment, privacy: int, more: int, mode: Mode, seed: int
) -> None:
    circles = random_circles(24, privacy, np.random.default_rng(seed))
    cohort = int(circles.sizes.max()) + more
    policy = MultiRound(circles, cohort, mode)
    selected = policy.select(now.available, now.frequencies, now.rng)
    member = np.isin(np.arange(24), selected)
    taken = circles.complete(member)
    assert circles.union(np.flatnonzero(taken)).tolist() == selected.tolist()
    assert selected.size <= cohort
    complete = circles.complete(now.available)
    assert taken.sum() == (policy.chosen if complete.sum() >= policy.chosen else 0)
    usage = circles.lowest(now.frequencies)
    if mode != "uniform" and taken.any():
        assert usage[taken].min() == usage[complete].min()
    if mode == "fairest":
        assert sorted(usage[taken]) == sorted(usage[complete])[: taken.sum()]


@pytest.mark.parametrize("mode", MODES)
def test_a_least_frequent_client_without_its_mate_is_no_obstacle(mode: Mode) -> None:
    policy = MultiRound(Circles.of([(0, 1), (2, 3), (4, 5)]), 2, mode)
    available = np.array([True, False, True, True, True, True])
    frequencies = np.array([0, 0, 7, 7, 5, 5])
    rng = np.random.default_rng(0)
    seen = {tuple(policy.select(available, frequencies, rng).tolist()) for _ in range(50)}
    assert seen == ({(2, 3), (4, 5)} if mode == "uniform" else {(4, 5)})


def test_ties_are_broken_at_random() -> None:
    policy = MultiRound(Circles.of([(0, 1), (2, 3), (4, 5)]), 2)
    rng = np.random.default_rng(0)
    seen = {policy.select(np.ones(6, bool), np.zeros(6, int), rng)[0] for _ in range(60)}
    assert seen == {0, 2, 4}


def test_over_selection_makes_up_for_circles_that_break() -> None:
    policy = MultiRound(random_circles(120, 6, np.random.default_rng(0)), 12, survival=0.95)
    assert (policy.chosen, policy.wanted) == (2, 3)
    rng, nobody = np.random.default_rng(1), np.zeros(120, int)
    assert policy.select(np.ones(120, bool), nobody, rng).size == 18
    two_complete = np.isin(np.arange(120), policy.circles.union(np.array([3, 7])))
    assert policy.select(two_complete, nobody, rng).size == 12
    one_complete = np.isin(np.arange(120), policy.circles.union(np.array([3])))
    assert policy.select(one_complete, nobody, rng).size == 0


def test_multi_round_refuses_contradictions_at_once() -> None:
    circles = Circles.of([(0, 1, 2), (3, 4, 5)])
    for cohort in (0, 2, 7):
        with pytest.raises(ConfigError):
            MultiRound(circles, cohort)
    with pytest.raises(ConfigError, match="unknown mode"):
        MultiRound(circles, 3, "random")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="surviving"):
        MultiRound(circles, 3, survival=0)
    with pytest.raises(ConfigError):
        MultiRound(Circles.of([]), 3)


@pytest.mark.parametrize(("masks", "counts"), [(5, 6), (6, 5), (5, 5)])
def test_arrays_of_the_wrong_length_are_refused(masks: int, counts: int) -> None:
    policy = MultiRound(Circles.of([(0, 1, 2), (3, 4, 5)]), 3)
    with pytest.raises(InputError, match="one entry for each client"):
        policy.select(np.ones(masks, bool), np.zeros(counts, int), np.random.default_rng(0))


@given(moments(), st.integers(1, 24))
def test_random_and_weighted_random_fill_the_cohort_or_skip(now: Moment, cohort: int) -> None:
    enough = now.available.sum() >= cohort
    for policy in (Random(cohort), WeightedRandom(cohort)):
        selected = policy.select(now.available, now.frequencies, now.rng)
        assert selected.size == (cohort if enough else 0)
    usage = sorted(now.frequencies[now.available])
    assert sorted(now.frequencies[selected]) == (usage[:cohort] if enough else [])


@given(st.integers(1, 60), st.data())
def test_partition_is_one_group_of_at_most_k(population: int, data: st.DataObject) -> None:
    cohort = data.draw(st.integers(1, population))
    policy = MultiRound(partition_circles(population, cohort, np.random.default_rng(0)), cohort)
    assert policy.chosen == 1
    assert policy.circles.sizes.sum() == population
    assert policy.circles.sizes.max() <= cohort
    assert policy.circles.privacy == population // len(policy.circles)


def test_partition_of_fewer_clients_than_a_cohort_is_refused() -> None:
    for cohort in (0, 5):
        with pytest.raises(ConfigError):
            partition_circles(4, cohort, np.random.default_rng(0))


def test_iid_aims_at_the_expected_number_of_available_clients() -> None:
    dropout = np.array([0.5, 0.5, 0.0, 0.0])
    assert Iid.aiming_at(2, dropout).probability == pytest.approx(2 / 3)
    for cohort in (0, 3, 4):
        with pytest.raises(ConfigError):
            Iid.aiming_at(cohort, dropout)


def test_balanced_halves_promises_weak_t_only() -> None:
    policy = BalancedHalves(4)
    assert "weak T" in POLICIES["balanced-halves"].promise
    assert declared_circles(policy, 12) is None
    rng = np.random.default_rng(4)
    history = simulate(policy, np.full(12, 0.2), 300, rng)
    signs = np.repeat([1, -1], 6)
    assert not (history @ signs).any()  # orthogonal to every row: no single client is in the row space
    assert strong_privacy(history) == 1
    assert np.linalg.matrix_rank(history.astype(float)) == 11  # all that is orthogonal: also every x_i - x_j
    one_half_empty = np.arange(12) < 6
    assert policy.select(one_half_empty, np.zeros(12, int), rng).size == 0
    for cohort in (0, 3):
        with pytest.raises(ConfigError):
            BalancedHalves(cohort)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("population", "privacy", "cohort"), [(24, 3, 6), (25, 3, 8), (40, 2, 9)])
def test_no_history_separates_fewer_than_t_clients(mode: Mode, population: int, privacy: int, cohort: int) -> None:
    rng = np.random.default_rng(5)
    dropout = mixed_dropout(population, rng)
    policy = MultiRound(random_circles(population, privacy, rng), cohort, mode)
    history = simulate(policy, dropout, 200, rng)
    assert history.any()
    assert strong_privacy(history) >= privacy
    assert history.sum(axis=1).max() <= cohort


def test_random_selection_separates_everyone() -> None:
    rng = np.random.default_rng(6)
    assert strong_privacy(simulate(Random(6), np.full(24, 0.2), 200, rng)) == 1


def test_a_custom_policy_needs_only_select() -> None:
    class Everyone:
        def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
            return np.flatnonzero(available) if available.all() else np.empty(0, np.int64)

    history = simulate(Everyone(), np.full(3, 0.5), 200, np.random.default_rng(0))
    assert set(history.sum(axis=1)) == {0, 3}


@settings(max_examples=40)
@given(st.sampled_from(list(POLICIES)), st.sampled_from([4, 6, 12]), st.booleans(), seeds)
def test_every_policy_keeps_the_circles_it_composes_together(name: str, cohort: int, similar: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    choices = PolicySettings(rng.choice([0.1, 0.3], 24), cohort, privacy=3, similar=similar)
    circles = POLICIES[name].compose(choices, rng)
    assert sorted(circles.members.tolist()) == list(range(24))
    assert (circles.privacy > 1) == POLICIES[name].keeps_circles
    history = simulate(POLICIES[name].build(circles, choices), choices.dropout, 40, rng)
    assert strong_privacy(history) >= circles.privacy


@pytest.mark.parametrize(("name", "promised"), [("multi-round", 3), ("partition", 6), ("random", 1), ("iid", 1)])
def test_the_circles_of_a_policy_have_the_size_that_it_promises(name: str, promised: int) -> None:
    choices = PolicySettings(np.full(24, 0.1), 6, privacy=3)
    assert POLICIES[name].compose(choices, np.random.default_rng(0)).privacy == promised


def test_a_custom_policy_is_added_as_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = PolicyKind(
        "one pair of clients",
        "strong T = 2",
        lambda choices, rng: random_circles(choices.dropout.size, 2, rng),
        lambda circles, choices: MultiRound(circles, 2),
    )
    monkeypatch.setitem(POLICIES, "pairs", pairs)
    policy = make_policy("pairs", PolicySettings(np.zeros(8), 4), np.random.default_rng(0))
    assert policy.select(np.ones(8, np.bool_), np.zeros(8, np.int64), np.random.default_rng(1)).size == 2


def test_unknown_policies_are_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="balanced-halves"):
        make_policy("lottery", PolicySettings(np.zeros(4), 2), np.random.default_rng(0))


@pytest.mark.parametrize("survival", [1e-300, 5e-324, 0.3])
def test_over_selection_never_wants_more_circles_than_exist(survival: float) -> None:
    circles = random_circles(12, 3, np.random.default_rng(0))
    assert MultiRound(circles, 6, survival=survival).wanted == len(circles) == 4
