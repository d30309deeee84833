"""Settings of the demonstration."""

from dataclasses import dataclass
from typing import Annotated

from coterie.settings import Option, Seed, Settings, Trials


@dataclass(frozen=True)
class DemoSettings(Settings):
    """Demonstrate why one secure round is not enough: recover digits from the sums of rounds with random cohorts.

    The same attack then runs on circles of 2 and of 4, which multi-round cohorts keep together. It uses the digits that
    come with Coterie and takes a minute or two. The result is a page that you can show to others.
    """

    rounds: Annotated[int, Option("Secure rounds that the server observes.", least=2, most=10_000)] = 40
    trials: Trials = 3
    steps: Annotated[int, Option("Steps of each inversion: the effort of the server.", least=1)] = 600
    seed: Seed = 0
