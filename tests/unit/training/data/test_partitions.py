from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError
from coterie.training.data.partitions import (
    Parts,
    by_person,
    dirichlet,
    iid,
    label_shards,
    sampled,
    shared_and_own_label,
    time_blocks,
)

seeds = st.integers(0, 2**32 - 1)
counts = st.integers(1, 12)
label_arrays = st.lists(st.integers(0, 4), min_size=12, max_size=80).map(lambda labels: np.array(labels, np.int64))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_divides(parts: Parts, size: int, clients: int) -> None:
    """Every client has examples, every example belongs to one client, and indices ascend."""
    assert len(parts) == clients
    assert all(part.size and part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(size))


def assert_even(parts: Parts, slack: int = 1) -> None:
    sizes = [part.size for part in parts]
    assert max(sizes) - min(sizes) <= slack


@given(st.integers(12, 80), counts, seeds)
def test_iid_divides_evenly(size: int, clients: int, seed: int) -> None:
    parts = iid(size, clients, generator(seed))
    assert_divides(parts, size, clients)
    assert_even(parts)


@given(label_arrays, counts, st.integers(1, 3), seeds)
def test_label_shards_divide_into_few_runs_of_labels(labels: Indices, clients: int, each: int, seed: int) -> None:
    if clients * each > labels.size:
        with pytest.raises(ConfigError):
            label_shards(labels, clients, generator(seed), each)
        return
    parts = label_shards(labels, clients, generator(seed), each)
    assert_divides(parts, labels.size, clients)
    assert_even(parts, slack=each)
    # A border between labels lies in at most one shard, so all clients together see few (client, label) pairs.
    assert sum(len(set(labels[part])) for part in parts) <= clients * each + len(set(labels)) - 1


def test_mnist_shards_have_500_examples_and_mostly_one_label() -> None:
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # MNIST's training classes
    labels = generator().permutation(np.repeat(np.arange(10), sizes))
    parts = label_shards(labels, 120, generator(1))
    assert {part.size for part in parts} == {500}
    assert sum(len(set(labels[part])) for part in parts) == 120 + 9


@given(label_arrays, counts, st.integers(0, 3), seeds)
def test_shared_examples_are_all_that_clients_have_in_common(
    labels: Indices, clients: int, shared: int, seed: int
) -> None:
    sizes = np.bincount(labels)
    if shared > sizes[sizes > 0].min() or labels.size - shared * np.count_nonzero(sizes) < clients:
        with pytest.raises(ConfigError):
            shared_and_own_label(labels, clients, generator(seed), shared)
        return
    parts = shared_and_own_label(labels, clients, generator(seed), shared)
    holders = np.bincount(np.concatenate(parts), minlength=labels.size)
    if clients > 1:
        common = np.flatnonzero(holders == clients)
        assert np.bincount(labels[common], minlength=sizes.size).tolist() == np.where(sizes > 0, shared, 0).tolist()
        assert set(holders) <= {1, clients}
    assert holders.min() >= 1
    assert_even(parts)


def test_cifar_sharing_gives_200_shared_and_415_of_one_label() -> None:
    labels = generator().permutation(np.repeat(np.arange(10), 5000))
    parts = shared_and_own_label(labels, 120, generator(1))
    for part in parts:
        assert sorted(np.bincount(labels[part])) == [20] * 9 + [20 + 415]
    assert np.unique(np.concatenate(parts)).size == 50_000


@given(label_arrays, counts, st.floats(1e-3, 1e3), st.integers(1, 3), seeds)
def test_dirichlet_divides_and_gives_every_client_enough(
    labels: Indices, clients: int, alpha: float, least: int, seed: int
) -> None:
    if clients * least > labels.size:
        with pytest.raises(ConfigError):
            dirichlet(labels, clients, generator(seed), alpha, least)
        return
    parts = dirichlet(labels, clients, generator(seed), alpha, least)
    assert_divides(parts, labels.size, clients)
    assert min(part.size for part in parts) >= least


def test_dirichlet_ranges_from_one_class_each_to_iid() -> None:
    labels = np.repeat(np.arange(10), 1000)

    def largest_share(alpha: float) -> float:
        parts = dirichlet(labels, 20, generator(3), alpha)
        return float(np.mean([np.bincount(labels[part]).max() / part.size for part in parts]))

    shares = [largest_share(alpha) for alpha in (0.01, 0.1, 1, 10, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    assert shares[-1] < 0.15  # 0.1 if all were alike


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_by_person_gives_each_person_a_client(owners: list[int]) -> None:
    people = np.array(owners)
    parts = by_person(people)
    assert_divides(parts, people.size, len(set(owners)))
    assert [set(people[part]) for part in parts] == [{person} for person in sorted(set(owners))]


@given(st.integers(12, 80), counts)
def test_time_blocks_follow_each_other(size: int, clients: int) -> None:
    parts = time_blocks(size, clients)
    assert np.concatenate(parts).tolist() == list(range(size))
    assert_divides(parts, size, clients)
    assert_even(parts)


def test_parts_depend_on_the_generator_alone() -> None:
    labels = np.repeat(np.arange(10), 40)

    def all_of_them(seed: int) -> list[Parts]:
        rng = generator(seed)
        return [
            iid(400, 20, rng),
            label_shards(labels, 20, rng, 2),
            shared_and_own_label(labels, 20, rng, 5),
            dirichlet(labels, 20, rng, 0.5),
        ]

    for once, again, other in zip(all_of_them(1), all_of_them(1), all_of_them(2), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


@given(st.integers(1, 60), st.integers(1, 200), st.data())
def test_sampled_clients_have_distinct_examples_and_may_outnumber_them(
    size: int, clients: int, data: st.DataObject
) -> None:
    examples = data.draw(st.integers(1, size))
    parts = sampled(size, clients, generator(3), examples)
    assert len(parts) == clients
    for part in parts:
        assert part.size == examples
        assert (np.diff(part) > 0).all()
        assert 0 <= part[0] <= part[-1] < size
    assert all(np.array_equal(a, b) for a, b in zip(parts, sampled(size, clients, generator(3), examples), strict=True))


def test_sampled_examples_are_equally_likely() -> None:
    counts = np.bincount(np.concatenate(sampled(50, 20_000, generator(1), 5)), minlength=50)
    assert np.abs(counts / 20_000 - 0.1).max() < 5 * np.sqrt(0.09 / 20_000)
    for examples in (0, 51):
        with pytest.raises(ConfigError, match="between 1 and 50 examples"):
            sampled(50, 2, generator(1), examples)


def test_impossible_partitions_are_refused() -> None:
    labels, rng = np.repeat(np.arange(3), 2), generator()
    divisions: tuple[Callable[[int], Parts], ...] = (
        lambda n: iid(6, n, rng),
        lambda n: label_shards(labels, n, rng),
        lambda n: shared_and_own_label(labels, n, rng, 1),
        lambda n: dirichlet(labels, n, rng, 1.0),
        lambda n: time_blocks(6, n),
    )
    for clients in (0, -1, 7):
        for divide in divisions:
            with pytest.raises(ConfigError, match="cannot be divided") as refused:
                divide(clients)
            assert ("partition.kind = sampled" in str(refused.value)) == (clients > 0)
    with pytest.raises(ConfigError, match="at least one shard"):
        label_shards(labels, 2, rng, 0)
    with pytest.raises(ConfigError, match="to share"):
        shared_and_own_label(labels, 2, rng, 3)
    with pytest.raises(ConfigError, match="to share"):
        shared_and_own_label(labels[:0], 2, rng)
    with pytest.raises(ConfigError, match="at least one example"):
        dirichlet(labels, 2, rng, 1.0, least=0)
    for alpha in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="alpha"):
            dirichlet(labels, 2, rng, alpha)
