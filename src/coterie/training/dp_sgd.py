"""DP-SGD: clip the gradient of each example and add noise to the sum (Abadi et al. 2016)."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.func import functional_call, grad_and_value, vmap

from coterie.arithmetic import FloatArray
from coterie.errors import Cancelled, ConfigError, LocalProtocolError
from coterie.privacy.bayesian import ORDERS, step_costs
from coterie.training import flatten
from coterie.training.local import LocalResult, LocalSGD, LocalTask, Problem, Stop

_CHUNK = 32  # examples whose gradients are in memory at a time


@dataclass(frozen=True)
class PrivateSGD:
    """Local training by steps along (sum of clipped gradients + noise) / expected batch size.

    Each example is in a step's batch with probability ``rate``, independently of all others. Its gradient is scaled
    down to norm ``clip`` at most. The noise is N(0, (multiplier clip)^2) in every entry. ``sgd`` holds learning rate,
    momentum and weight decay.

    Batches and noise are derived from ``secret``: anyone who has it can subtract the noise. The generator is numpy's,
    in floating point, which is good enough to measure the cost in accuracy. A deployment needs exact noise from a
    cryptographic source, as :mod:`coterie.privacy` has for sums.

    The result's update has one more array than the model: the Bayesian cost of the round
    (:func:`~coterie.privacy.bayesian.step_costs`), measured on the gradients of its batches.
    """

    sgd: LocalSGD
    steps: int
    rate: float
    clip: float
    multiplier: float
    horizon: int
    """Number of steps of the whole run, for the Bayesian cost."""
    secret: bytes = field(default=b"", repr=False)

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop = lambda: False) -> LocalResult:
        """Train a copy of the model."""
        began = time.thread_time()
        if flatten.statistics(problem.model):
            raise ConfigError("a model that keeps statistics (batch normalisation) mixes examples: clipping fails")
        if not self.secret:
            raise LocalProtocolError("private training needs a secret for its noise")
        module = problem.instance(task.state).train()
        parameters = flatten.parameters(module)
        weights = list(parameters.values())
        velocity = self.sgd.initial_velocity(weights)
        rng = self._generator(task)
        costs, total, seen = np.zeros(len(ORDERS)), 0.0, 0
        for _ in range(self.steps):
            if stop():
                raise Cancelled(f"{task.client!r} stopped training")
            chosen = task.indices[rng.random(task.indices.size) < self.rate]
            sums, norms, losses = self._clipped(problem, module, chosen)
            noise = [rng.standard_normal(tuple(one.shape), np.float32) for one in weights]
            scale = self.multiplier * self.clip
            gradients = [
                (one + scale * torch.from_numpy(by)) / (self.rate * task.indices.size)
                for one, by in zip(sums, noise, strict=True)
            ]
            self.sgd.descend(weights, gradients, velocity)
            costs += step_costs(norms, scale, self.rate, self.horizon, self.clip)
            total, seen = total + losses, seen + chosen.size
        update = flatten.difference(flatten.read(module), task.state)
        spent = time.thread_time() - began
        loss = total / seen if seen else 0.0
        return LocalResult(task.client, task.round, [*update, costs], task.indices.size, loss, spent)

    def _clipped(
        self, problem: Problem, module: torch.nn.Module, chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    ) -> tuple[Sequence[torch.Tensor], FloatArray, float]:
        """Return the sum of the examples' clipped gradients, the norms after clipping, and the sum of the losses."""
        weights = {name: weight.detach() for name, weight in flatten.parameters(module).items()}

        def loss(given: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return problem.losses(functional_call(module, given, (x.unsqueeze(0),)), y.unsqueeze(0))[0]

        sums = [torch.zeros_like(weight) for weight in weights.values()]
        norms, total = [np.zeros(0)], 0.0
        for first in range(0, chosen.size, _CHUNK):
            x, y = problem.data.batch(chosen[first : first + _CHUNK])
            try:
                each, losses = vmap(grad_and_value(loss), (None, 0, 0))(weights, x, y)
            except RuntimeError as error:
                raise ConfigError(f"gradients of single examples cannot be computed for this model: {error}") from error
            rows = [each[name].flatten(1) for name in weights]
            lengths = torch.stack([row.square().sum(1) for row in rows]).sum(0).sqrt()
            scales = self.clip / lengths.clamp(min=self.clip)
            for one, row in zip(sums, rows, strict=True):
                one += (scales @ row).reshape(one.shape)
            norms.append((lengths * scales).double().numpy())
            total += float(losses.sum())
        return sums, np.concatenate(norms), total

    def _generator(self, task: LocalTask) -> np.random.Generator:
        name = self.secret + f"/private descent/{task.round}/{task.client}".encode()
        return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(name).digest())))
