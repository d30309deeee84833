"""Ditto's personal models: v <- v - step (grad F_k(v) + penalty (v - common model)), one step in every round.

In numpy, as the rest of the descent; the tests hold it to :class:`coterie.training.strategies.Ditto`.
"""

from collections.abc import Sequence

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.attacks.active_membership.records import MembershipScene
from coterie.confined import Parameters
from coterie.confined.network import loss_and_gradient


class PersonalModels:
    """A model for each honest participant, near the common one: argmin F_k(v) + penalty/2 ||v - common||^2."""

    def __init__(self, scene: MembershipScene, step: float, penalty: float, start: Parameters) -> None:
        """Let all begin at the common model."""
        self._scene, self._step, self._penalty = scene, step, penalty
        self.models: tuple[Parameters, ...] = (start,) * scene.participants

    def train(self, common: Sequence[FloatArray]) -> None:
        """Let everybody take one step, towards the common model as it is before this round's sum."""
        data = self._scene.honest
        each = len(data) // self._scene.participants
        parts = [slice(each * number, each * number + each) for number in range(self._scene.participants)]
        self.models = tuple(
            self._stepped(own, loss_and_gradient(data.x[part], data.y[part], own)[1], common)
            for own, part in zip(self.models, parts, strict=True)
        )

    def _stepped(self, own: Parameters, gradient: Parameters, common: Sequence[FloatArray]) -> Parameters:
        return [
            np.asarray(v - self._step * (g + self._penalty * (v - w)), v.dtype)
            for v, g, w in zip(own, gradient, common, strict=True)
        ]
