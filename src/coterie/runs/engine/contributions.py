"""What clients contribute to a round: their updates, clipped, rounded, and with noise if the settings say so."""

from collections.abc import Sequence

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.memory import ClientMemory
from coterie.crypto.context import bind, digest
from coterie.errors import TrainingError
from coterie.privacy import NoisyQuantizer
from coterie.rounds.member import Contribute
from coterie.runs.engine.protection import Protection
from coterie.runs.engine.secrets import ClientSecrets, digest_of
from coterie.runs.engine.updates import LocalUpdates, canonical
from coterie.runs.records.record import RoundCosts
from coterie.secagg.server import Aggregate
from coterie.training.flatten import ModelArrays
from coterie.training.streams import stream


class Contributions:
    """The inputs of a round's clients: their updates, encoded for the sum."""

    def __init__(self, updates: LocalUpdates, protection: Protection, secrets: ClientSecrets, seed: int) -> None:
        """Prepare for the first round; ``seed`` decides the rounding."""
        self.updates = updates
        self._codec, self._layout = protection.codec, protection.layout
        self._secrets, self._seed = secrets, seed
        self._number = 0
        self._clipped: dict[str, int] = {}

    def of(self, name: str, memory: ClientMemory) -> Contribute:
        """Return the function that computes this client's input; the client remembers how it was computed.

        A round that is repeated after a crash is another sum over the same circles. It reveals nothing new if inputs
        are computed in the same way; otherwise the server gets one more equation. With noise the client remembers the
        input itself.
        """
        return lambda _terms: self.encode(name, memory)

    def costs(self, seconds: float, upload_bytes: int, download_bytes: int) -> RoundCosts:
        """Return the costs of the round, which took this many seconds, including training."""
        updates = self.updates
        return RoundCosts(
            losses=updates.losses,
            clipped=self._clipped,
            entries=self._layout.size,
            upload_bytes=upload_bytes,
            download_bytes=download_bytes,
            train_seconds=updates.seconds,
            protect_seconds=max(0.0, seconds - updates.seconds),
            computed=updates.computed,
        )

    def begin(self, number: int, training: Sequence[str]) -> None:
        """Forget the previous round, and let these clients begin to train."""
        self._number, self._clipped = number, {}
        self.updates.begin()
        if training:
            self.updates.start(number, training)

    def decode(self, aggregate: Aggregate) -> ModelArrays:
        """Return the mean from a sum."""
        return self._codec.decode(aggregate.total, self._layout, len(aggregate.clients)).mean

    def encode(self, name: str, memory: ClientMemory) -> RingVector:
        """Wait for a client's update, and return it encoded for the sum."""
        arrays = self.updates.contribution(name)
        rounding = stream(self._seed, "rounding", self._number, name)
        if isinstance(self._codec, NoisyQuantizer):
            encoded = self._codec.encode(arrays, rounding, self._secrets.noise(self._number, name, arrays))
            # The digest covers the noise too, because the noise changes with another secret or library version.
            if not memory.pledge(self._number, digest_of([encoded.vector])):
                raise TrainingError(
                    f"{name} has another input than before round {self._number} was interrupted, and the noise of both "
                    "together protects less: resume this run on the machine and with the libraries that it began "
                    "with, and with its own clients.secret"
                )
        else:
            weight = self.updates.strategy.weight(name)
            recipe = digest(bind("run recipe", self.updates.recipes[name], canonical(self._codec), weight))
            if not memory.pledge(self._number, recipe):
                raise TrainingError(
                    f"{name} took part in round {self._number} before it was interrupted, under another recipe (model, "
                    "learning rate, local work, clip, precision or weight), and two sums over one circle that are "
                    "computed differently reveal more than T allows: resume with the settings of that time, rounds "
                    "included if the schedule depends on it, and change them after this round"
                )
            encoded = self._codec.encode(arrays, rounding, weight)
        self._clipped[name] = encoded.clipped
        return encoded.vector
