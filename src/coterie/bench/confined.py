"""The cost of confined descent: an iteration of many participants against one gradient of one model, and of sharing.

Iterations and full-batch gradients of the same network on the same data take turns. The loss check is on; secure sums
and evaluation are not included. Splitting a vector into shares is compared with generating the random shares.
"""

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from coterie.arithmetic import FloatArray, Quantizer, RingVector
from coterie.bench.machine import best_seconds
from coterie.confined import ConfinedDescent, ConstantStep, Contribution, SharingTerms
from coterie.confined.cached_groups import CachedGroups
from coterie.confined.grid import Grid, GridOffsets
from coterie.confined.network import Labels, loss_and_gradient, zero_anchor
from coterie.confined.sharing import deal, from_others, introduce, kept_share, publish, total
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.keystream import SEED_BYTES, generate
from coterie.errors import ConfigError, RoundAborted
from coterie.host import peak_rss_bytes
from coterie.training.data.datasets import load
from coterie.training.streams import stream

FEATURES, HIDDEN, CLASSES, EXAMPLES = 784, 256, 10, 60_000
PARAMETERS = FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
MEMBERS = 32
ALPHA, NORM = 0.1, 1.0
PRECISION = 22
_TOLERANCE = 1e-3  # how much a float32 loss may change if the terms are added in another order


def median_ratio(seconds: Sequence[float], reference: Sequence[float]) -> float:
    """Return how many times as long work takes as the reference it took turns with: the median over turns."""
    return statistics.median(one / other for one, other in zip(seconds, reference, strict=True))


def take_turns(
    repeats: int, watch: Callable[[int], None], *works: Callable[[int], object]
) -> tuple[tuple[float, ...], ...]:
    """Time each function once in every turn, after one turn to warm up; it gets the number of its turn, from 1 on."""
    if repeats < 1:
        raise ConfigError(f"at least 1 iteration must be measured, not {repeats}")
    turns = []
    for number in range(1, 2 + repeats):
        turn = []
        for work in works:
            began = perf_counter()
            work(number)
            turn.append(perf_counter() - began)
        turns.append(turn)
        watch(number)
    return tuple(zip(*turns[1:], strict=True))


@dataclass(frozen=True)
class TimedIterations:
    """The iterations that were timed: the grid of participants, and the examples."""

    grid: Grid
    examples: int
    data: str


@dataclass(frozen=True)
class IterationCosts(TimedIterations):
    """One full-batch gradient and two iterations in every turn, in seconds of wall-clock time."""

    gradient_seconds: tuple[float, ...]
    iteration_seconds: tuple[float, ...]
    clipped_seconds: tuple[float, ...]
    """Iterations in which every participant clips its block to a norm."""
    refused: float
    """The share of decisions of groups to refuse a step."""
    peak_rss_bytes: int

    @property
    def ratio(self) -> float:
        """How many times as long an iteration takes as a gradient: the median over turns."""
        return median_ratio(self.iteration_seconds, self.gradient_seconds)

    @property
    def clipped_ratio(self) -> float:
        """The same with clipping."""
        return median_ratio(self.clipped_seconds, self.gradient_seconds)


@dataclass(frozen=True)
class SharingCosts:
    """The cost of a member of an additive sum, in seconds of processor time."""

    members: int
    length: int
    bits: int
    generate_seconds: float
    """Expanding the seeds of all shares except the one it keeps: a lower bound for the time of sharing."""
    split_seconds: float
    """Splitting its vector into shares: expanding the seeds, and subtracting."""
    deal_seconds: float
    """All of its step: agreeing on a key with every other member, splitting, sealing."""
    publish_seconds: float
    """Opening the shares dealt to it, expanding and adding them, packing the sum."""
    total_seconds: float
    """Reading everybody's published sum, and adding them."""

    @property
    def split_ratio(self) -> float:
        """How many times as long splitting takes as generating the random shares."""
        return self.split_seconds / self.generate_seconds


def mnist_like_examples(seed: int) -> tuple[str, FloatArray, Labels]:
    """Return the name of the data, and the training examples of MNIST if found, otherwise as many random ones."""
    try:
        data = load("mnist")
        return "MNIST", np.asarray(data.train_x, np.float32).reshape(-1, FEATURES), data.train_y.astype(np.int64)
    except ConfigError:
        rng = stream(seed, "bench examples")
        return "random", rng.standard_normal((EXAMPLES, FEATURES), np.float32), rng.integers(CLASSES, size=EXAMPLES)


def measure_iterations(
    grid: Grid,
    repeats: int,
    seed: int = 0,
    examples: tuple[str, FloatArray, Labels] | None = None,
    watch: Callable[[int], None] = lambda _played: None,
) -> IterationCosts:
    """Let gradients, iterations and clipped iterations take turns, after one turn to warm up."""
    data, x, labels = examples or mnist_like_examples(seed)
    anchor = zero_anchor(x.shape[1], HIDDEN, CLASSES)
    offsets = GridOffsets(anchor, lambda name: stream(seed, "bench offset", name), grid=grid)
    descent = ConfinedDescent(offsets, grid.names, ConstantStep(ALPHA))
    groups = CachedGroups(x, labels, grid, descent)
    one, everybody = offsets.of(grid.names[0]), np.ones(grid.groups, bool)
    rng = stream(seed, "bench iterations")
    refused = 0

    def iterate(norm: float | None) -> None:
        nonlocal refused
        mean = groups.gradient(everybody, Contribution(norm), rng)
        refused += len(groups.advance(descent.propose(mean), rng))

    works = (lambda _: loss_and_gradient(x, labels, one), lambda _: iterate(None), lambda _: iterate(NORM))
    gradient, iteration, clipped = take_turns(repeats, watch, *works)
    _check(groups, x, labels, grid)
    decisions = grid.groups * descent.iteration
    return IterationCosts(grid, len(x), data, gradient, iteration, clipped, refused / decisions, peak_rss_bytes())


def measure_sharing(members: int = MEMBERS, length: int = PARAMETERS) -> SharingCosts:
    """Time every step of one member on real messages of all the others; their sum is checked first."""
    quantizer = Quantizer(1.0, PRECISION, members)
    names = tuple(f"member-{number}" for number in range(members))
    terms = SharingTerms(os.urandom(SEED_BYTES), names, quantizer.ring.bits, length)
    rng, entropy = stream(0, "bench vectors"), SystemEntropy()
    vectors = {
        name: rng.integers(quantizer.ring.modulus, size=length, dtype=np.uint64).astype(quantizer.ring.dtype)
        for name in names
    }
    introduced = {name: introduce(terms, name, entropy) for name in names}
    keys = {name: message for name, (_, message) in introduced.items()}
    dealt = {
        name: deal(state, from_others(keys, name), vectors[name], entropy) for name, (state, _) in introduced.items()
    }
    shares = {name: {peer: sent[name] for peer, (_, sent) in dealt.items() if peer != name} for name in names}
    published = {name: publish(state, shares[name]) for name, (state, _) in dealt.items()}
    me, vector = names[0], vectors[names[0]]
    sums = from_others({name: message for name, (_, message) in published.items()}, me)
    expected: RingVector = np.sum(list(vectors.values()), axis=0, dtype=quantizer.ring.dtype)
    quantizer.ring.reduce(expected)
    if not np.array_equal(total(published[me][0], sums), expected):
        raise RoundAborted("additive sharing did not find the sum of the vectors")
    seeds = [os.urandom(SEED_BYTES) for _ in range(members - 1)]
    seconds = best_seconds(
        lambda: generate(seeds, vector.nbytes),
        lambda: kept_share(vector, seeds),
        lambda: deal(introduced[me][0], from_others(keys, me), vector, entropy),
        lambda: publish(dealt[me][0], shares[me]),
        lambda: total(published[me][0], sums),
    )
    return SharingCosts(members, length, quantizer.ring.bits, *seconds)


def _check(groups: CachedGroups, x: FloatArray, labels: Labels, grid: Grid) -> None:
    """Check that the cached loss of the first and the last group is that of its model on its examples."""
    each = grid.rows_each(len(x))
    for number in (0, grid.groups - 1):
        rows = slice(each * number, each * number + each)
        loss, _ = loss_and_gradient(x[rows], labels[rows], groups.descent.confined(grid.names[number]))
        if not abs(loss - groups.losses[number]) <= _TOLERANCE * max(1.0, loss):
            raise RoundAborted(f"a group's cached loss is {groups.losses[number]:.6g}, but its real loss is {loss:.6g}")
