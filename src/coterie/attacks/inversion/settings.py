"""Settings of gradient inversion."""

from dataclasses import dataclass
from typing import Annotated

from coterie.errors import ConfigError
from coterie.settings import DataDir, ModelName, Option, PicturesName, Seed, Settings, Trials


@dataclass(frozen=True)
class InversionSettings(Settings):
    """Gradient inversion: reconstruct a client's pictures from its update, and from the mean update of its circle.

    Random cohorts reveal the update of a client over many rounds; circles reveal only the mean of T clients. The same
    attack with the same budget runs for T = 1, 2 and 4, beside guesses of an attacker who saw no update. A circle is
    attacked in two ways: as if its mean were the client's update, and for all pictures of the circle at once.
    """

    data: PicturesName = "digits"
    model: ModelName = "softmax-regression"
    clients: Annotated[int, Option("Number of clients.", least=2, most=10_000)] = 16
    examples: Annotated[
        int, Option("Pictures of each client, all in one step; more are harder to invert.", least=1)
    ] = 8
    privacy: Annotated[tuple[int, ...], Option("Size of a circle, T; may be repeated.", name="--privacy -T")] = (2, 4)
    trained: Annotated[
        int, Option("Rounds of training before the attack; 0 attacks the first round.", least=0, most=10_000)
    ] = 0
    steps: Annotated[int, Option("Steps of each inversion: the budget of the attacker.", least=1)] = 600
    step_size: Annotated[float, Option("How far a pixel moves in a step, as a share of its range.")] = 0.1
    variation: Annotated[float, Option("Weight of the total variation: how smooth pictures are expected to be.")] = 1e-4
    trials: Trials = 6
    seed: Seed = 0
    data_dir: DataDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.privacy or any(not 2 <= privacy <= self.clients for privacy in self.privacy):
            raise ConfigError(f"circles must have from 2 to {self.clients} clients, not {self.privacy}")
