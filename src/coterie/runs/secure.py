"""Rounds of secure aggregation, each through the real protocol."""

from collections.abc import Callable

import numpy as np

from coterie.arithmetic.quantize import Encoded, Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import Mask
from coterie.cohorts.ledger import Outcome
from coterie.crypto.entropy import Entropy
from coterie.errors import RoundAborted
from coterie.privacy import NoisyQuantizer
from coterie.runs.local_updates import LocalUpdates
from coterie.runs.played import TOO_FEW, Observe, Played
from coterie.runs.presence import who_trains, without
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.training.streams import stream
from coterie.transports.faults import Faults
from coterie.transports.memory import Report
from coterie.transports.rounds import PlayedRound, Rounds


class Secure:
    """Rounds of secure aggregation: the server sees sums over whole circles, and nothing else.

    Unless there is noise, an entry of the mean is within :meth:`Quantizer.error_bound` of that of
    :class:`~coterie.runs.plain.Plain`.
    """

    def __init__(
        self,
        rounds: Rounds,
        bench: LocalUpdates,
        codec: Quantizer | NoisyQuantizer,
        layout: Layout,
        seed: int,
        entropy: Callable[[int, str], Entropy],
        observe: Observe | None = None,
    ) -> None:
        """Prepare rounds; ``entropy`` gives a client's source of noise in a round, ``seed`` decides the rounding."""
        self._rounds, self._bench, self._codec, self._layout = rounds, bench, codec, layout
        self._seed = seed
        self._entropy = entropy
        self._observe = observe

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round through the real protocol; its ledger is kept."""
        bench = self._bench
        bench.begin()
        clipped: dict[str, int] = {}

        def vector(name: str) -> RingVector:
            encoded = self._encode(number, name, bench.contribution(name))
            clipped[name] = encoded.clipped
            return encoded.vector

        played = self._rounds.play(
            number,
            available,
            vector,
            rng,
            faults=faults,
            observe=self._observe,
            on_select=lambda names: bench.start(number, who_trains(faults, names)),
            resuming=resuming,
        )
        report = played.report or Report()
        outcome, reason, mean = played.outcome, str(played.error or ""), None
        if outcome is Outcome.SKIPPED:
            reason = TOO_FEW
        if played.aggregate is not None:
            try:
                mean = self._codec.decode(played.aggregate.total, self._layout, len(played.aggregate.clients)).mean
            except RoundAborted as error:
                outcome, reason = Outcome.ABORTED_AFTER_REVEAL, str(error)
        revealed = outcome in (Outcome.COMPLETED, Outcome.ABORTED_AFTER_REVEAL)
        steps = report.steps.values()
        return Played(
            outcome,
            reason,
            played.selected,
            report.aggregated if revealed else (),
            dropped=without(played.selected, _remaining(played)),
            stranded=without(report.survivors, report.aggregated),
            mean=mean,
            losses=bench.losses,
            clipped=sum(clipped.values()) / max(1, len(clipped) * self._layout.size),
            upload_bytes=sum(sum(step.upload_bytes) for step in steps),
            download_bytes=sum(sum(step.download_bytes) for step in steps),
            train_seconds=bench.seconds,
            protect_seconds=max(0.0, report.seconds - bench.seconds),
            compute_seconds=bench.compute_seconds,
        )

    def _encode(self, number: int, name: str, arrays: ModelArrays) -> Encoded:
        rounding = stream(self._seed, "rounding", number, name)
        if isinstance(self._codec, NoisyQuantizer):
            return self._codec.encode(arrays, rounding, self._entropy(number, name))
        return self._codec.encode(arrays, rounding, self._bench.strategy.weight(name))


def _remaining(played: PlayedRound) -> tuple[str, ...]:
    """Who was there to the end, or until the round was given up."""
    report = played.report
    if report is None:
        return played.selected
    last = list(report.steps)[-1]
    if last is Step.REVEAL and played.outcome is not Outcome.ABORTED_BEFORE_REVEAL:
        return report.revealers
    return {Step.ADVERTISE: report.advertisers, Step.SHARE: report.sharers}.get(last, report.survivors)
