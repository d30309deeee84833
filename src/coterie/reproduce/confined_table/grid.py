"""Descents over grids of participants, and for comparison participants that learn alone, or all in one place.

All take full batches and the same constant or falling step along the mean gradient of a network with one hidden layer,
from random starts. Sums are computed in the clear: secure addition would only round their entries, and its cost is
measured by ``coterie bench confined``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Mask
from coterie.confined import (
    LOSS_CHECKS,
    ConfinedDescent,
    ConstantStep,
    Contribution,
    IncreaseCheck,
    PaperStep,
    Spread,
    StepSize,
)
from coterie.confined.cached_groups import CachedGroups
from coterie.confined.claims import Theorem1, sound_epsilon
from coterie.confined.grid import Grid, GridOffsets
from coterie.confined.network import ROWS, Labels, loss_and_gradient, softmax_errors, zero_anchor
from coterie.confined.offsets import Parameters, balanced_start
from coterie.errors import ConfigError
from coterie.host import peak_rss_bytes
from coterie.reproduce.confined_table.outcomes import Evaluation, Finding
from coterie.training.data.datasets import load
from coterie.training.streams import stream

_DELTA = 1e-5  # the paper's


class GridCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A grid of participants, and how they learn."""

    data: str
    options: dict[str, Any] = {}
    """The options of the data set's loader."""
    rows: int = 0
    """The number of training examples, the first of the file; 0 is as many as can be dealt evenly."""
    groups: int
    members: int
    method: Literal["confined", "local", "local, own features", "centralised"] = "confined"
    hidden: int = 256
    spread: float = 0.1
    """lambda."""
    most: float | None = None
    """If given, every participant draws its lambda between ``spread`` and this."""
    lambdas: tuple[float, ...] = ()
    """If given, the lambda that each group chooses, one for each group."""
    alpha: float = 0.5
    mu: float | None = None
    """If given, steps fall after the first ``constant`` ones: alpha ((1 + mu T) / (j + mu T))^2, T = iterations."""
    constant: int = 0
    check: str = "none"
    threshold: float = 0.0
    """LRR, for the check ``increase``: the local loss may increase by so much."""
    clip: float | None = None
    """If given, the norm that every participant's gradient is scaled down to."""
    sigma: float = 0.0
    """The deviation of the noise that every participant adds to each entry of its clipped gradient."""
    fraction: float = 1.0
    """C: the share of the groups that contribute to an iteration."""
    circle: int = 1
    """The groups of a fixed circle. The subset of an iteration is a union of circles; 1 draws single groups."""
    choose: dict[str, tuple[float, ...]] = {}
    """Settings that are chosen on validation examples, such as ``alpha``, with the values that are tried."""
    validation: float = 0.2
    """The share of the training examples, the last ones, that these are."""
    batches: int = 1
    """Confined and centralised descent go through this many batches in a fixed order, an iteration for each; those who
    learn alone take all their examples in every iteration."""
    iterations: int
    every: int = 20
    sample: int = 10
    """The number of models that are evaluated: those of the first groups."""

    def __post_init__(self) -> None:
        if self.lambdas and len(self.lambdas) != self.groups:
            raise ValueError(f"lambdas has {len(self.lambdas)} numbers for {self.groups} groups")
        if self.groups % self.circle or not 0 < self.fraction <= 1 or not self.chosen:
            raise ValueError(f"{self.fraction:g} of {self.groups} groups are not whole circles of {self.circle}")
        if self.sigma < 0 or (self.sigma and self.clip is None):
            raise ValueError("sigma must not be negative, and needs clip: noise hides nothing of unbounded gradients")
        if self.batches < 1 or (self.batches > 1 and self.check != "none"):
            raise ValueError("batches are at least 1, and more than one only without a loss check, which needs all")
        if unknown := set(self.choose) - {"alpha", "threshold"}:
            raise ValueError(f"choose can try alpha and threshold, not {', '.join(sorted(unknown))}")

    @property
    def chosen(self) -> int:
        """The number of groups that contribute to an iteration: whole circles."""
        return round(self.fraction * self.groups / self.circle) * self.circle

    @property
    def blocks(self) -> int:
        """The number of clipped blocks that an example of a group is in: its members', and the group's own."""
        return self.members + 1

    @property
    def spreads(self) -> dict[str, Spread]:
        """The lambdas that groups chose for themselves, by the name of the group."""
        return dict(zip(Grid(self.groups).names, map(Spread, self.lambdas), strict=False))

    @property
    def step_size(self) -> StepSize:
        """The step along the mean gradient."""
        if self.mu is None:
            return ConstantStep(self.alpha)
        return PaperStep(self.alpha, self.mu, self.iterations, self.constant)

    @property
    def claimed_epsilon(self) -> float:
        """The epsilon of the paper's Theorem 1: not sound, because it counts the random starts."""
        return self._claim(1.0)

    @property
    def corollary_epsilon(self) -> float | None:
        """The epsilon of the paper's Corollary 1, for IID data: not sound either; None if all groups contribute."""
        return self._claim(self.chosen / self.groups) if self.chosen < self.groups else None

    @property
    def example_epsilon(self) -> float | None:
        """The epsilon of the noise for one example replaced by another, if no group colludes; None without noise."""
        if not self.sigma or self.clip is None:
            return None
        return sound_epsilon(
            self.sigma, self.iterations, _DELTA, honest=self.chosen, norm=self.clip, blocks=self.blocks
        )

    def _claim(self, fraction: float) -> float:
        spread = self.spread if self.most is None else (self.spread + self.most) / 2
        spread = sum(self.lambdas) / len(self.lambdas) if self.lambdas else spread
        return Theorem1(self.groups * self.members, spread, self.sigma, self.iterations, fraction).printed(_DELTA)


class Rows(msgspec.Struct, frozen=True):
    """Training and test examples as rows of features."""

    x: FloatArray
    y: Labels
    test_x: FloatArray
    test_y: Labels
    classes: int

    def score(self, model: Parameters) -> tuple[float, float]:
        """Return accuracy and loss of a model on the test examples."""
        w1, b1, w2, b2 = model
        right, loss = 0, 0.0
        for first in range(0, len(self.test_y), ROWS):
            labels = self.test_y[first : first + ROWS]
            logits = np.maximum(self.test_x[first : first + ROWS] @ w1 + b1, 0) @ w2 + b2
            right += int((logits.argmax(axis=1) == labels).sum())
            loss += float(softmax_errors(logits, labels)[1].sum())
        return right / len(self.test_y), loss / len(self.test_y)


def play(case: GridCase, seed: int, folder: Path | None, stop: Callable[[], bool]) -> Finding | None:
    """Let the participants of a case learn; None if ``stop`` ended it before the last iteration."""
    rows = load_rows(case, folder)
    tried = try_settings(case, rows, seed, stop) if case.choose else {}
    if tried is None:
        return None
    best = max(tried, key=lambda values: tried[values]) if tried else ()
    values = dict(best)
    case = msgspec.structs.replace(case, choose={}, **values)
    learners = {"confined": _confined, "centralised": _centralised}.get(case.method, _alone)
    curve, seconds, refused = [], [], 0.0
    began = process_time()
    for number, (evaluation, share) in enumerate(learners(case, rows, seed), start=1):
        seconds.append(process_time() - began)
        refused += share
        due = number % case.every == 0 or number == case.iterations
        curve += [msgspec.structs.replace(evaluation(), iteration=number)] if due else []
        if stop() and number < case.iterations:
            return None
        began = process_time()
    participants = case.groups * case.members
    return Finding(
        curve=tuple(curve),
        iterations=case.iterations,
        participants=participants,
        refused=refused / case.iterations if case.method == "confined" else None,
        claimed=case.claimed_epsilon if case.method == "confined" else None,
        corollary=case.corollary_epsilon if case.method == "confined" and case.fraction < 1 else UNSET,
        example_epsilon=case.example_epsilon if case.method == "confined" and case.sigma else UNSET,
        chosen=values or UNSET,
        seconds=median(seconds[1:] or seconds),
        peak_bytes=peak_rss_bytes(),
        rows=len(rows.y),
    )


_Learning = Iterator[tuple[Callable[[], Evaluation], float]]
"""After every iteration, a function that evaluates the models, and the share of the groups that refused the step."""


def try_settings(
    case: GridCase, rows: Rows, seed: int, stop: Callable[[], bool]
) -> dict[tuple[tuple[str, float], ...], float] | None:
    """Try all combinations of the values in ``case.choose``; return the accuracy of each on validation examples.

    Validation examples are the last training examples, and nobody trains on them here. None if ``stop`` ended it.
    """
    kept = round((1 - case.validation) * len(rows.y)) // case.groups * case.groups
    if not 0 < kept < len(rows.y):
        raise ConfigError(f"{len(rows.y)} examples, {case.validation:.0%} of them for validation, leave none or all")
    held_out = Rows(rows.x[:kept], rows.y[:kept], rows.x[kept:], rows.y[kept:], rows.classes)
    found = {}
    for values in product(*([(name, value) for value in given] for name, given in case.choose.items())):
        trial = msgspec.structs.replace(case, choose={}, **dict(values))
        for number, (evaluation, _) in enumerate(_confined(trial, held_out, seed), start=1):
            if stop():
                return None
            if number == trial.iterations:
                found[values] = evaluation().score
    return found


def begin(case: GridCase, rows: Rows, seed: int) -> CachedGroups:
    """Let the groups of a case start at their offsets."""
    grid, anchor = Grid(case.groups, case.members), zero_anchor(rows.x.shape[1], case.hidden, rows.classes)
    spread = Spread(case.spread, case.most)
    offsets = GridOffsets(anchor, lambda name: stream(seed, "offset", name), spread, case.spreads, grid)
    check = IncreaseCheck(case.threshold) if case.check == "increase" else LOSS_CHECKS[case.check]()
    descent = ConfinedDescent(offsets, grid.names, case.step_size, check)
    return CachedGroups(rows.x, rows.y, grid, descent)


def draw_subset(case: GridCase, rng: np.random.Generator) -> Mask:
    """Return the groups that contribute to an iteration: a union of circles, drawn once for all participants."""
    circles = case.groups // case.circle
    drawn = rng.choice(circles, case.chosen // case.circle, replace=False)
    return np.repeat(np.isin(np.arange(circles), drawn), case.circle)


def play_iteration(
    groups: CachedGroups,
    rng: np.random.Generator,
    clip: float | None = None,
    sigma: float = 0.0,
    subset: Mask | None = None,
) -> float:
    """Take one step along the mean gradient of a subset, by default all groups; return the share that refused it."""
    step = _propose(groups, rng, clip, sigma, subset)
    return len(groups.advance(step, rng)) / groups.grid.groups


def play_batch(
    batch: CachedGroups, rng: np.random.Generator, clip: float | None, sigma: float, subset: Mask | None
) -> None:
    """Take one step along the mean gradient of a subset on one batch; nobody refuses it."""
    batch.catch_up()
    step = _propose(batch, rng, clip, sigma, subset)
    batch.descent.take(step, dict.fromkeys(batch.descent.participants, True))


def _propose(
    groups: CachedGroups, rng: np.random.Generator, clip: float | None, sigma: float, subset: Mask | None
) -> Parameters:
    chosen = np.ones(groups.grid.groups, bool) if subset is None else subset
    return groups.descent.propose(groups.gradient(chosen, Contribution(clip, sigma), rng))


def _confined(case: GridCase, rows: Rows, seed: int) -> _Learning:
    groups, rng = begin(case, rows, seed), stream(seed, "iterations")
    descent, drawing = groups.descent, stream(seed, "subsets")

    def evaluation() -> Evaluation:
        own = [rows.score(descent.confined(name)) for name in descent.participants[: case.sample]]
        return Evaluation.of(own, rows.score(descent.public_model)[0])

    parts = groups.split(case.batches) if case.batches > 1 else []
    for number in range(case.iterations):
        subset = draw_subset(case, drawing) if case.chosen < case.groups else None
        if parts:
            play_batch(parts[number % case.batches], rng, case.clip, case.sigma, subset)
            yield evaluation, 0.0
        else:
            yield evaluation, play_iteration(groups, rng, case.clip, case.sigma, subset)


def _centralised(case: GridCase, rows: Rows, seed: int) -> _Learning:
    """One model on all rows, from one participant's start."""
    model = start_of(case, rows, seed, "group-0")
    batches = list(zip(np.array_split(rows.x, case.batches), np.array_split(rows.y, case.batches), strict=True))

    def evaluation() -> Evaluation:
        return Evaluation.of([rows.score(model)])

    for number in range(1, case.iterations + 1):
        model = descend(model, *batches[(number - 1) % case.batches], case.step_size(number))
        yield evaluation, 0.0


def _alone(case: GridCase, rows: Rows, seed: int) -> _Learning:
    """Some participants, each on its own rows, with all features or with its own alone."""
    grid = Grid(case.groups, case.members)
    each, columns = grid.rows_each(len(rows.y)), grid.columns(rows.x.shape[1])
    chosen = range(min(case.sample, grid.groups))
    members = spread_members(grid.members, len(chosen))
    seen = [columns[member] if "own" in case.method else slice(None) for member in members]
    parts = [slice(each * number, each * number + each) for number in chosen]
    held = [(np.ascontiguousarray(rows.x[part][:, own]), rows.y[part]) for part, own in zip(parts, seen, strict=True)]
    models = [
        start_of(case, msgspec.structs.replace(rows, x=x), seed, grid.names[number])
        for number, (x, _) in zip(chosen, held, strict=True)
    ]

    def evaluation() -> Evaluation:
        views = [msgspec.structs.replace(rows, test_x=np.ascontiguousarray(rows.test_x[:, own])) for own in seen]
        return Evaluation.of([view.score(model) for view, model in zip(views, models, strict=True)])

    for number in range(1, case.iterations + 1):
        alpha = case.step_size(number)
        models = [descend(model, x, y, alpha) for model, (x, y) in zip(models, held, strict=True)]
        yield evaluation, 0.0


def spread_members(members: int, looks: int) -> list[int]:
    """Choose a member for each look, spread evenly over all columns: the first ones of a picture are its margin."""
    return [(2 * look + 1) * members // (2 * looks) for look in range(looks)]


def start_of(case: GridCase, rows: Rows, seed: int, name: str) -> Parameters:
    """Return the model that a participant starts from if it learns alone."""
    anchor = zero_anchor(rows.x.shape[1], case.hidden, rows.classes)
    return balanced_start(anchor, Spread(case.spread, case.most), stream(seed, "offset", name))


def descend(model: Parameters, x: FloatArray, y: Labels, alpha: float) -> Parameters:
    """Return a model after one step along its gradient on these examples."""
    _, gradient = loss_and_gradient(x, y, model)
    return [np.asarray(weight - alpha * by, weight.dtype) for weight, by in zip(model, gradient, strict=True)]


def load_rows(case: GridCase, folder: Path | None) -> Rows:
    """Read the examples of a case."""
    found = _loaded(case.data, tuple(case.options.items()), folder)
    most = case.rows or len(found.y)
    kept = most // case.groups * case.groups
    if not kept or most > len(found.y):
        raise ConfigError(f"{case.data} has {len(found.y)} training examples: not {most} for {case.groups} groups")
    return msgspec.structs.replace(found, x=found.x[:kept], y=found.y[:kept])


@lru_cache(1)
def _loaded(name: str, options: tuple[tuple[str, Any], ...], folder: Path | None) -> Rows:
    """Read a data set once for all jobs of a process that follow each other."""
    data = load(name, folder, **dict(options))
    if data.classes is None:
        raise ConfigError(f"{name} has no labels, and a grid learns nothing else")
    train_x, test_x = (np.asarray(x, np.float32).reshape(len(x), -1) for x in (data.train_x, data.test_x))
    return Rows(train_x, data.train_y.astype(np.int64), test_x, data.test_y.astype(np.int64), data.classes)
