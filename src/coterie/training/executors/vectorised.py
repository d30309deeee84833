"""Local training of many clients as one computation. It is faster for small models, where call overhead dominates.

The clients' models are stacked. :func:`torch.func.vmap` turns the model into one that applies row i of every parameter
to row i of the inputs. No loss depends on another client's row, so the gradient of the *sum* of the losses has the
clients' gradients as its rows.

The result equals that of training one client after the other up to floating-point rounding, **not bit for bit**: a
product of stacked matrices adds in another order than a product of two. A run that must be repeatable bit for bit, for
example to be resumed, records which executor it used; :func:`choose_executor` returns it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch.func import functional_call, vmap

from coterie.cohorts.circles import Indices
from coterie.errors import Cancelled, ConfigError
from coterie.training import flatten
from coterie.training.local import (
    ArrayData,
    LocalResult,
    LocalSGD,
    LocalTask,
    Problem,
    Stop,
    one_thread,
)

Executor: TypeAlias = Literal["processes", "vectorised"]

LANES = 32
"""The maximum number of clients trained together. More give no measurable gain and take memory."""


def train_together(problem: Problem, tasks: Sequence[LocalTask], stop: Stop = lambda: False) -> list[LocalResult]:
    """Carry out tasks that differ in client, examples and model only, all with the same :class:`LocalSGD`.

    Raises :class:`ConfigError` if that is impossible: the model keeps statistics, draws random numbers (dropout) or has
    an operation that torch cannot vectorise, or the examples are not in arrays.
    """
    began = time.thread_time()
    work = _common_work(problem, tasks)
    # Sorted by number of steps, longest first: the clients still training are always the first rows.
    ranked = sorted(tasks, key=lambda task: -work.steps(task.indices.size))
    batches = [list(work.batches(task)) for task in ranked]
    module = problem.instance(ranked[0].state).train()
    names = list(flatten.parameters(module))
    stacks = [torch.from_numpy(np.stack(arrays)) for arrays in zip(*(task.state for task in ranked), strict=True)]
    velocity = work.initial_velocity(stacks)
    totals = np.zeros(len(ranked))

    def losses(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        # Shorter batches are padded, and padding must not count: the loss of each example is needed.
        return problem.losses(functional_call(module, weights, (x,)), y, each=True)

    for step in range(len(batches[0])):
        if stop():
            raise Cancelled(f"{len(ranked)} clients stopped training")
        chosen = [lane[step] for lane in batches if step < len(lane)]
        indices, shares = _padded(chosen)
        rows = [stack[: len(chosen)].detach().requires_grad_() for stack in stacks]
        x, y = (part.reshape(*indices.shape, *part.shape[1:]) for part in problem.data.batch(indices.ravel()))
        try:
            each: torch.Tensor = vmap(losses)(dict(zip(names, rows, strict=True)), x, y)
        except RuntimeError as error:
            raise ConfigError(
                f"this model cannot be vectorised, so training.executor must be processes: {error}"
            ) from error
        means = (each * shares.to(each.dtype)).sum(1)
        gradients = torch.autograd.grad(means.sum(), rows, allow_unused=True, materialize_grads=True)
        work.descend(rows, gradients, [rest[: len(chosen)] for rest in velocity])
        totals[: len(chosen)] += means.detach().numpy() * [lane.size for lane in chosen]
    trained = [stack.numpy() for stack in stacks]
    share = (time.thread_time() - began) / sum(len(lane) for lane in batches)
    results = {
        task.client: LocalResult(
            task.client,
            task.round,
            flatten.difference([stack[lane] for stack in trained], task.state),
            task.indices.size,
            totals[lane].item() / (work.epochs * work.used(task.indices.size)),
            share * len(batches[lane]),
        )
        for lane, task in enumerate(ranked)
    }
    return [results[task.client] for task in tasks]


@dataclass(frozen=True)
class ExecutorChoice:
    """The executor to use, the reason, and the measured seconds for a round of the given tasks."""

    executor: Executor
    reason: str
    processes_seconds: float | None = None
    vectorised_seconds: float | None = None


_PROBE_LANES = 8  # clients in a trial; more would gain little
_PROBE_STEPS = 4
_LONG_STEP = 0.005  # seconds; vectorising saves at most the call overhead of a step, about 0.5 ms
_DISPATCH = 0.0005  # seconds to send a task to a worker and receive the result, for 20,000 parameters
_TOLERANCE = 1e-3  # of the largest entry: rounding is far below, a layer that behaves differently far above


def choose_executor(problem: Problem, tasks: Sequence[LocalTask], workers: int) -> ExecutorChoice:
    """Run a few steps of a round's ``tasks`` with both executors and choose the faster one for all of them.

    If the results differ by more than rounding can explain, the choice is ``processes``. Measured times vary, and so
    may the choice; results then differ by rounding. Choose once per run and record the choice.
    """
    work = tasks[0].work
    if not isinstance(work, LocalSGD):
        return ExecutorChoice("processes", "only plain local SGD is vectorised")
    short = replace(work, epochs=1)
    trial = [
        replace(task, indices=task.indices[: _PROBE_STEPS * work.batch_size], work=short)
        for task in tasks[:_PROBE_LANES]
    ]
    single = replace(trial[0], indices=trial[0].indices[: work.batch_size])
    steps = [work.steps(task.indices.size) for task in tasks]
    with one_thread():
        step = _seconds(lambda: short(problem, single))
        if step > _LONG_STEP:
            return ExecutorChoice("processes", f"a step takes {step * 1e3:.1f} ms: too long to gain by vectorising")
        try:
            alone, together = short(problem, trial[0]), train_together(problem, trial)
        except ConfigError as error:
            return ExecutorChoice("processes", str(error))
        if not _agree(alone, together[0]):
            return ExecutorChoice("processes", "the model computes something else when it is vectorised")
        step = _seconds(lambda: short(problem, trial[0])) / short.steps(alone.samples)
        group = _seconds(lambda: train_together(problem, trial)) / max(short.steps(one.samples) for one in together)
    processes = step * sum(steps)
    if workers:
        processes = processes / min(workers, len(tasks)) + _DISPATCH * len(tasks)
    # Clients with fewer steps finish early, which is not counted: unequal clients gain little from vectorising.
    vectorised = group * max(steps) * len(tasks) / len(trial)
    chosen: Executor = "vectorised" if vectorised < processes else "processes"
    reason = f"a round takes {processes:.3g} s in processes and {vectorised:.3g} s vectorised"
    return ExecutorChoice(chosen, reason, processes, vectorised)


def _common_work(problem: Problem, tasks: Sequence[LocalTask]) -> LocalSGD:
    work = tasks[0].work
    if not isinstance(work, LocalSGD) or any(task.work != work for task in tasks):
        raise ConfigError("only tasks of plain local SGD with the same settings can be vectorised")
    if flatten.statistics(problem.model):
        raise ConfigError("a model that keeps statistics (batch normalisation) cannot be vectorised")
    if not isinstance(problem.data, ArrayData):
        raise ConfigError("only examples in arrays can be vectorised")
    return work


def _padded(chosen: Sequence[Indices]) -> tuple[Indices, torch.Tensor]:
    """Pad batches to equal length by repeating an example, and return the weights of the mean: 0 for repetitions."""
    longest = max(batch.size for batch in chosen)
    indices = np.empty((len(chosen), longest), np.int64)
    weights = np.zeros(indices.shape)
    for lane, batch in enumerate(chosen):
        indices[lane, : batch.size], indices[lane, batch.size :] = batch, batch[-1]
        weights[lane, : batch.size] = 1 / batch.size
    return indices, torch.from_numpy(weights)


def _seconds(run: Callable[[], object]) -> float:
    """Return the best processor time of three runs, after one to warm up."""
    times = []
    for _ in range(4):
        began = time.thread_time()
        run()
        times.append(time.thread_time() - began)
    return min(times[1:])


def _agree(one: LocalResult, other: LocalResult) -> bool:
    return all(
        np.allclose(a, b, rtol=0, atol=_TOLERANCE * float(np.abs(a).max(initial=0)))
        for a, b in zip(one.update, other.update, strict=True)
    )
