"""Descents over grids of participants, and what each of them would learn alone or all together in one place.

All take full batches and the same constant or falling step along the mean gradient, of one network with one hidden
layer, from random starts. Sums are made in the clear here: secure addition rounds entries and changes no more, and what
it costs is measured by ``coterie bench confined``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Literal

import msgspec
import numpy as np

from coterie.arithmetic import FloatArray
from coterie.confined import LOSS_CHECKS, ConfinedDescent, ConstantStep, Contribution, PaperStep, Spread, StepSize
from coterie.confined.cached import CachedGroups
from coterie.confined.claims import Theorem1
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
    """Those of the data set's loader."""
    rows: int = 0
    """How many training examples are used, the first of the file; 0: as many as can be dealt evenly."""
    groups: int
    members: int
    method: Literal["confined", "local", "local, own features", "centralised"] = "confined"
    hidden: int = 256
    spread: float = 0.1
    """lambda."""
    most: float | None = None
    """If given, every participant draws its lambda between ``spread`` and this."""
    alpha: float = 0.5
    mu: float | None = None
    """If given, steps fall after the first ``constant`` ones: alpha ((1 + mu T) / (j + mu T))^2, T = iterations."""
    constant: int = 0
    check: str = "none"
    clip: float | None = None
    """If given, the norm that every participant's gradient is scaled down to."""
    iterations: int
    every: int = 20
    sample: int = 10
    """How many participants' models are evaluated: the first of so many groups."""

    @property
    def step_size(self) -> StepSize:
        """The step along the mean gradient."""
        if self.mu is None:
            return ConstantStep(self.alpha)
        return PaperStep(self.alpha, self.mu, self.iterations, self.constant)

    @property
    def claimed_epsilon(self) -> float:
        """What Theorem 1 of the paper would have: not sound, for there is no noise."""
        spread = self.spread if self.most is None else (self.spread + self.most) / 2
        return Theorem1(self.groups * self.members, spread, 0.0, self.iterations).printed(_DELTA)


class Rows(msgspec.Struct, frozen=True):
    """Examples as rows of features: to train on, and to test with."""

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
    """Let the participants of a case learn; None if it was asked to stop before the end."""
    rows = load_rows(case, folder)
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
        seconds=median(seconds[1:] or seconds),
        peak_bytes=peak_rss_bytes(),
        rows=len(rows.y),
    )


_Learning = Iterator[tuple[Callable[[], Evaluation], float]]
"""After every iteration, what evaluates the models, and which share of the decisions was to refuse the step."""


def begin(case: GridCase, rows: Rows, seed: int) -> CachedGroups:
    """Let the groups of a case start at their offsets."""
    grid, anchor = Grid(case.groups, case.members), zero_anchor(rows.x.shape[1], case.hidden, rows.classes)
    offsets = GridOffsets(anchor, lambda name: stream(seed, "offset", name), Spread(case.spread, case.most), grid=grid)
    descent = ConfinedDescent(offsets, grid.names, case.step_size, LOSS_CHECKS[case.check]())
    return CachedGroups(rows.x, rows.y, grid, descent)


def play_iteration(groups: CachedGroups, rng: np.random.Generator, clip: float | None = None) -> float:
    """Take one step along the mean gradient of all groups; return the share of them that refused it."""
    mean = groups.gradient(np.ones(groups.grid.groups, bool), Contribution(clip), rng)
    return len(groups.advance(groups.descent.propose(mean), rng)) / groups.grid.groups


def _confined(case: GridCase, rows: Rows, seed: int) -> _Learning:
    groups, rng = begin(case, rows, seed), stream(seed, "iterations")
    descent = groups.descent

    def evaluation() -> Evaluation:
        own = [rows.score(descent.confined(name)) for name in descent.participants[: case.sample]]
        return Evaluation.of(own, rows.score(descent.public_model)[0])

    for _ in range(case.iterations):
        yield evaluation, play_iteration(groups, rng, case.clip)


def _centralised(case: GridCase, rows: Rows, seed: int) -> _Learning:
    """One model on all rows, from one participant's start."""
    models = [_start(case, rows, seed, "group-0")]
    for number in range(1, case.iterations + 1):
        _descend(models, [(rows.x, rows.y)], case.step_size(number))
        yield lambda: Evaluation.of([rows.score(model) for model in models]), 0.0


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
        _start(case, msgspec.structs.replace(rows, x=x), seed, grid.names[number])
        for number, (x, _) in zip(chosen, held, strict=True)
    ]

    def evaluation() -> Evaluation:
        views = [msgspec.structs.replace(rows, test_x=np.ascontiguousarray(rows.test_x[:, own])) for own in seen]
        return Evaluation.of([view.score(model) for view, model in zip(views, models, strict=True)])

    for number in range(1, case.iterations + 1):
        _descend(models, held, case.step_size(number))
        yield evaluation, 0.0


def spread_members(members: int, looks: int) -> list[int]:
    """Choose a member for each look, spread evenly over all columns: the first ones of a picture are its margin."""
    return [(2 * look + 1) * members // (2 * looks) for look in range(looks)]


def _start(case: GridCase, rows: Rows, seed: int, name: str) -> Parameters:
    anchor = zero_anchor(rows.x.shape[1], case.hidden, rows.classes)
    return balanced_start(anchor, Spread(case.spread, case.most), stream(seed, "offset", name))


def _descend(models: list[Parameters], held: Sequence[tuple[FloatArray, Labels]], alpha: float) -> None:
    for position, (x, y) in enumerate(held):
        _, gradient = loss_and_gradient(x, y, models[position])
        models[position] = [
            np.asarray(weight - alpha * by, weight.dtype) for weight, by in zip(models[position], gradient, strict=True)
        ]


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
