"""Rounds of secure aggregation, each through the real protocol."""

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import Mask
from coterie.cohorts.memory import ClientMemory
from coterie.crypto.context import bind, digest
from coterie.errors import TrainingError
from coterie.privacy import NoisyQuantizer
from coterie.rounds import Coordinator, Member
from coterie.rounds.member import Contribute
from coterie.runs.engine.played import Played
from coterie.runs.engine.presence import who_trains
from coterie.runs.engine.protection import Protection
from coterie.runs.engine.secrets import ClientSecrets, digest_of
from coterie.runs.engine.updates import LocalUpdates, name_of
from coterie.secagg.server import Aggregate, Step
from coterie.training.flatten import ModelArrays
from coterie.training.streams import stream
from coterie.transports.faults import Faults
from coterie.transports.memory import Carrier


class Secure:
    """Rounds of secure aggregation: the server sees sums over whole circles, and nothing else.

    Unless there is noise, an entry of the mean is within :meth:`Quantizer.error_bound` of that of
    :class:`~coterie.runs.engine.plain.Plain`.
    """

    def __init__(
        self,
        rounds: Coordinator[ModelArrays],
        members: Mapping[str, Member],
        carrier: Carrier,
        contributions: "Contributions",
    ) -> None:
        self._rounds, self._members, self._carrier, self._contributions = rounds, members, carrier, contributions

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round through the real protocol; its ledger is kept."""
        contributions, updates = self._contributions, self._contributions.updates
        played = self._rounds.open(number, available, rng, content=updates.content(number), resuming=resuming)
        # Training begins with the round: it need not wait until keys are exchanged, which do not depend on it.
        contributions.begin(number, who_trains(faults, played.selected) if played.step is not Step.DONE else ())
        for name in played.selected:
            self._members[name].content = updates.given.get(name)
        self._carrier.faults = faults
        report = self._carrier.play(played, self._members)
        result, steps = played.result, report.steps.values()
        return Played(
            result.outcome,
            result.reason,
            result.attendance.selected,
            result.revealed,
            dropped=result.dropped,
            stranded=result.stranded,
            left_later=result.left_later,
            mean=result.value,
            losses=updates.losses,
            clipped=contributions.clipped,
            upload_bytes=sum(sum(step.upload_bytes) for step in steps),
            download_bytes=sum(sum(step.download_bytes) for step in steps),
            train_seconds=updates.seconds,
            protect_seconds=max(0.0, report.seconds - updates.seconds),
            compute_seconds=updates.compute_seconds,
        )


class Contributions:
    """What clients put into a round: what they trained, clipped, rounded and, where it is wanted, with noise."""

    def __init__(self, updates: LocalUpdates, protection: Protection, secrets: ClientSecrets, seed: int) -> None:
        """Begin before the first round; ``seed`` decides the rounding."""
        self.updates = updates
        self._codec, self._layout = protection.codec, protection.layout
        self._secrets, self._seed = secrets, seed
        self._number = 0
        self._clipped: dict[str, int] = {}

    def of(self, name: str, memory: ClientMemory) -> Contribute:
        """Return what makes this client's input when it is asked to mask; it remembers how that was made.

        A round that is played again after a crash is one more sum over the same circles. Made in the same way it says
        nothing new; made in another way it is one more equation. With noise the client remembers the input itself.
        """
        return lambda _terms: self.encode(name, memory)

    @property
    def clipped(self) -> float:
        """The share of entries that lay outside the clipping range in this round."""
        return sum(self._clipped.values()) / max(1, len(self._clipped) * self._layout.size)

    def begin(self, number: int, training: Sequence[str]) -> None:
        """Forget the round before, and let these clients begin to train."""
        self._number, self._clipped = number, {}
        self.updates.begin()
        if training:
            self.updates.start(number, training)

    def decode(self, aggregate: Aggregate) -> ModelArrays:
        """Return the mean that a sum stands for."""
        return self._codec.decode(aggregate.total, self._layout, len(aggregate.clients)).mean

    def encode(self, name: str, memory: ClientMemory) -> RingVector:
        """Wait for a client's update, and return it as what is summed."""
        arrays = self.updates.contribution(name)
        rounding = stream(self._seed, "rounding", self._number, name)
        if isinstance(self._codec, NoisyQuantizer):
            encoded = self._codec.encode(arrays, rounding, self._secrets.noise(self._number, name, arrays))
            # All that is sent, not the update alone: its noise may be another too, by another secret or library.
            if not memory.pledge(self._number, digest_of([encoded.vector])):
                raise TrainingError(
                    f"{name} has another input than before round {self._number} was interrupted, and fresh noise on it "
                    "would weaken the old: go on with this run on the machine and libraries it began with, and with "
                    "its own clients.secret"
                )
        else:
            weight = self.updates.strategy.weight(name)
            recipe = digest(bind("run recipe", self.updates.recipes[name], name_of(self._codec), weight))
            if not memory.pledge(self._number, recipe):
                raise TrainingError(
                    f"{name} took part in round {self._number} before it was interrupted, under another recipe (model, "
                    "learning rate, local work, clip, precision or weight), and two sums over one circle that are made "
                    "differently tell more than T allows: resume under the settings of then, rounds included if the "
                    "schedule depends on it, and change them after this round"
                )
            encoded = self._codec.encode(arrays, rounding, weight)
        self._clipped[name] = encoded.clipped
        return encoded.vector
