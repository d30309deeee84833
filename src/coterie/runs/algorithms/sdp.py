"""Centralised training under differential privacy (DP-SGD), the comparison that noise on every step would allow."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from coterie.errors import LocalProtocolError
from coterie.runs.algorithms.baseline import BaselineAlgorithm
from coterie.runs.sections.base import Positive, Section

if TYPE_CHECKING:
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.federation import Federation
    from coterie.runs.engine.played import Aggregation
    from coterie.runs.engine.resources import RunResources
    from coterie.runs.records.promise import Promise
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import RunConfig
    from coterie.training.evaluate import Score
    from coterie.training.strategies import PrivateDescent, Strategy

ASSUMPTIONS = (
    "The unit of privacy is one example, there or not; a person or a client with several is protected less.",
    "What is protected is the model, against those who see it. Whoever trains it sees all the data.",
    "Every step takes each example with the same probability and independently, and nobody learns whom it took; the "
    "bound is that of Poisson sampling, composed by dp-accounting.",
    "Batches and noise come from the run's secret by a generator that is not cryptographic, in floating point: good "
    "for an experiment, not for a deployment.",
    "Accuracy on test examples is not covered, nor is the Bayesian estimate, which is computed without noise.",
)
"""What its epsilon rests on."""


class PrivateDescentSettings(Section):
    """DP-SGD on all data in one place: for one example, at noise.delta; training.batch_size is the expected one."""

    clip_norm: Positive = Field(default=1.0, description="an example's gradient is scaled down to this norm at most")
    multiplier: Positive = Field(
        default=2.0, description="deviation of the noise in a sum of gradients, in units of clip_norm"
    )


class PrivateTraining(BaselineAlgorithm):
    """One model, trained on everybody's examples with noise; whoever trains it sees them all."""

    section = "sdp"
    # Batches are larger than a client's, for the noise is divided by their size; and steps as large as that allows.
    defaults: ClassVar[Mapping[str, object]] = {
        "training.batch_size": 64,
        "training.epochs": 1,
        "training.learning_rate": 0.5,
    }
    fixes = frozenset({"rounds"})
    columns = ("bdp",)
    public = frozenset({"bdp"})  # although it comes from the data: it is what is asked for, and ASSUMPTIONS say so

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it for so many rounds: the Bayesian estimate must know how many."""
        from coterie.runs.engine.curriculum import make_curriculum
        from coterie.training.strategies import PrivateDescent

        settings, curriculum = config.sdp, make_curriculum(config, federation)
        return PrivateDescent(
            federation.problem.model, curriculum, config.rounds, settings.clip_norm, settings.multiplier
        )

    def rounds(self, built: "BuiltRun", resources: "RunResources") -> "Aggregation":
        """Train with noise from the run's secret."""
        _private(built).trust(resources.folder.secret())
        return super().rounds(built, resources)

    def measures(self, built: "BuiltRun", scores: "Mapping[str, Score]") -> Mapping[str, float]:
        """Return the Bayesian estimate so far."""
        return {"bdp": _private(built).bayesian_epsilon(built.config.noise.delta)}

    def epsilon(self, built: "BuiltRun", revealed: int) -> float:
        """Return what all steps so far have spent."""
        return _private(built).epsilon(built.config.noise.delta)

    def assumptions(self, built: "BuiltRun") -> tuple[str, ...]:
        """Say what that epsilon rests on."""
        return ASSUMPTIONS

    def guarantee(self, summary: "Summary") -> str:
        """Say that it is for one example."""
        return "for each single example, by Gaussian noise on clipped gradients"

    def introduction(self, config: "RunConfig", promise: "Promise") -> str:
        """Say that it is a baseline."""
        return "DP-SGD on all data in one place, a baseline"

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say who sees what, and what the estimate is not."""
        from coterie.privacy.bayesian import floor_epsilon

        about = (
            "Whoever trained the model saw all data. Whoever sees the model learns little of any one example, as "
            "(epsilon, delta) says. This is a baseline."
        )
        yield "Privacy", about
        found, delta = summary.extras.get("bdp"), summary.config.noise.delta
        if found is not None:
            estimate = (
                f"bdp = {found:.3g}: Bayesian differential privacy at delta = {delta:g}, a data-dependent estimate "
                "and not a guarantee. It is for examples like those measured, and computed from them without noise. "
                f"At no cost at all this accountant returns its floor of {floor_epsilon(delta):.3g}."
            )
            yield "Estimate", estimate


def _private(built: "BuiltRun") -> "PrivateDescent":
    from coterie.training.strategies import PrivateDescent

    if not isinstance(built.strategy, PrivateDescent):
        raise LocalProtocolError("this strategy adds no noise")
    return built.strategy
