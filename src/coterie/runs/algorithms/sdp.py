"""DP-SGD on all data in one place, a baseline: centralised training with noise on every step."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from coterie.runs.algorithms.base import Resources, Rounds
from coterie.runs.algorithms.baseline import BaselineAlgorithm
from coterie.runs.records.promise import Promise
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Positive, Section
from coterie.runs.sections.common import CommonSettings

if TYPE_CHECKING:
    from coterie.training.evaluate import Score
    from coterie.training.strategies import PrivateDescent

ASSUMPTIONS = (
    "The unit of privacy is one example, there or not; a person or a client with several is protected less.",
    "What is protected is the model, against those who see it. Whoever trains it sees all the data.",
    "Every step takes each example with the same probability and independently, and nobody learns whom it took; the "
    "bound is that of Poisson sampling, composed by dp-accounting.",
    "Batches and noise come from the run's secret by a generator that is not cryptographic, in floating point: good "
    "for an experiment, not for a deployment.",
    "Accuracy on test examples is not covered, nor is the Bayesian estimate, which is computed without noise.",
)
"""The assumptions of its epsilon."""


class PrivateDescentSettings(Section):
    """DP-SGD on all data in one place: for one example, at noise.delta; training.batch_size is the expected one."""

    clip_norm: Positive = Field(default=1.0, description="an example's gradient is scaled down to this norm at most")
    multiplier: Positive = Field(
        default=2.0, description="deviation of the noise in a sum of gradients, in units of clip_norm"
    )


class PrivateTraining(BaselineAlgorithm[PrivateDescentSettings]):
    """One model, trained on the examples of all clients with noise. Its trainer sees all of them."""

    section = "sdp"
    settings = PrivateDescentSettings
    # Batches are larger than those of clients, because the noise is divided by their size. That allows larger steps.
    defaults: ClassVar[Mapping[str, object]] = {
        "training.batch_size": 64,
        "training.epochs": 1,
        "training.learning_rate": 0.5,
    }
    fixed = frozenset({"rounds"})
    columns = ("bdp",)
    public = frozenset({"bdp"})  # computed from the data without noise; users want it, and ASSUMPTIONS mention it

    strategy: "PrivateDescent"

    def make_strategy(self) -> "PrivateDescent":
        """Build it for all rounds, because the Bayesian estimate depends on their number."""
        from coterie.training.strategies import PrivateDescent

        context, settings = self.context, self.context.settings
        return PrivateDescent(
            context.problem.model, context.curriculum, context.rounds, settings.clip_norm, settings.multiplier
        )

    def rounds(self, resources: Resources) -> Rounds:
        """Train with noise from the run's secret."""
        self.strategy.trust(resources.secret())
        return super().rounds(resources)

    def measures(self, scores: "Mapping[str, Score]", sigma: float) -> Mapping[str, float]:
        """Return the Bayesian estimate so far."""
        return {"bdp": self.strategy.bayesian_epsilon(self.context.noise.delta)}

    def epsilon(self, revealed: int, spent: float | None) -> float:
        """Return what all steps so far have spent."""
        return self.strategy.epsilon(self.context.noise.delta)

    def assumptions(self, of_sums: tuple[str, ...]) -> tuple[str, ...]:
        """Return what that epsilon assumes."""
        return ASSUMPTIONS

    @classmethod
    def guarantee(cls, summary: Summary) -> str:
        """Return that it protects one example."""
        return "for each single example, by Gaussian noise on clipped gradients"

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Return that it is a baseline."""
        return "DP-SGD on all data in one place, a baseline"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield who sees what, and that the estimate is not a guarantee."""
        from coterie.privacy.bayesian import floor_epsilon

        about = (
            "Whoever trained the model saw all data. Whoever sees the model learns little about any one example, as "
            "(epsilon, delta) says. This is a baseline."
        )
        yield "Privacy", about
        found, delta = summary.extras.get("bdp"), summary.config.noise.delta
        if found is not None:
            estimate = (
                f"bdp = {found:.3g}: Bayesian differential privacy at delta = {delta:g}, a data-dependent estimate "
                "and not a guarantee. It is for examples like those measured, and computed from them without noise. "
                f"If nothing is spent, this accountant returns its floor of {floor_epsilon(delta):.3g}."
            )
            yield "Estimate", estimate
