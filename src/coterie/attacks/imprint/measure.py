"""Imprinting: with a model crafted by the server, the sum of any cohort contains individual examples.

Secure aggregation reveals only the sum over whole circles. But if the model keeps examples apart within a sum, the sum
contains them unchanged. Each measurement is one round: a crafted model, a real session, and the sum that it reveals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from torch import nn

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.federation import Federation, Vector, shaped
from coterie.attacks.imprint.layer import Imprinter, craft, examples_in, network
from coterie.attacks.imprint.settings import ImprintSettings
from coterie.attacks.reconstructions import nearest
from coterie.attacks.session import play_session
from coterie.attacks.similarity import Pictures, PixelScale, psnr
from coterie.cohorts.circles import random_circles
from coterie.errors import PeerProtocolError
from coterie.privacy.encoding import clip_norm
from coterie.rounds.floor import Floor
from coterie.secagg.terms import Terms
from coterie.training import flatten
from coterie.training.architecture import architecture, check_architecture
from coterie.training.local import LocalSGD, Problem
from coterie.training.streams import stream

HONEST = "softmax-regression"
"""The model that clients agreed to train; with an imprint layer in front it is the two-layer network ``mlp``."""
EXACT = 1 / 32
"""The largest error of a pixel: half a grey level of the bundled digits, so that rounding gives the exact picture."""


@dataclass(frozen=True, eq=False)
class RecoveredExamples:
    """The examples of a round that an attacker recovers."""

    exact: int
    """The number of examples that are recovered exactly."""
    psnr: float
    """The mean PSNR of each example and the nearest recovered one."""
    originals: Pictures = field(repr=False)
    nearest: Pictures = field(repr=False)

    @property
    def share(self) -> float:
        """The share of examples that is recovered exactly."""
        return self.exact / len(self.originals)


@dataclass(frozen=True, eq=False)
class CraftedRound:
    """One round with a crafted model."""

    cohort: int
    bins: int
    expected: float
    """The expected number of examples that are alone in their bin."""
    bare: RecoveredExamples
    """From the sum over whole circles that secure aggregation reveals."""
    noisy: Mapping[float, RecoveredExamples]
    """From the same sum with noise, by the noise multiplier."""
    guess: RecoveredExamples
    """The baseline: as many public pictures as there are bins."""
    refused_for_length: bool
    refused_for_architecture: bool
    refused_where_wide: bool
    """Whether pinning the architecture helps if the agreed model has such a layer, and its parameters are crafted."""


@dataclass(frozen=True)
class Imprint(ImprintSettings):
    """Imprinting: how many examples a crafted model reveals in the sum of a cohort of whole circles."""

    title: ClassVar[str] = "A crafted model that reveals examples in any sum"
    threat: ClassVar[Adversary] = threats.IMPRINT

    def measure(self, watch: OnProgress) -> list[CraftedRound]:
        """Send crafted models to cohorts, with each defence off and on."""
        rounds: list[CraftedRound] = []
        for number in range(self.trials):
            for done, (cohort, bins) in enumerate(self._cases()):
                share = (number + done / len(self._cases())) / self.trials
                watch(f"a crafted model with {bins} bins for {cohort} clients", share)
                rounds.append(self.round(number, cohort, bins))
        return rounds

    def round(self, number: int, cohort: int, bins: int) -> CraftedRound:
        """Play one round, protected only by secure aggregation over circles, then with noise."""
        seed = int(stream(self.seed, "imprint", number, cohort, bins).integers(2**62))
        federation = Federation.deal(self.data, HONEST, cohort, seed, examples=self.examples, data_dir=self.data_dir)
        dataset, honest = federation.dataset, federation.problem.model
        imprinter = Imprinter.of(dataset.test_x, bins, dataset.outputs, stream(seed, "imprinter"))
        crafted = network(dataset.input_shape, bins, dataset.outputs)
        craft(crafted, imprinter)
        federation = replace(federation, problem=Problem(crafted, federation.problem.data))
        work = LocalSGD(0.1, batch_size=self.examples)
        state = federation.start
        updates = federation.updates(state, 1, work)
        circles = random_circles(cohort, self.privacy, stream(seed, "circles"))
        numbers = {client: number for number, circle in enumerate(circles) for client in circle}
        opened = play_session(list(updates), seed, circles=[numbers[client] for client in range(cohort)]).mean
        scale = PixelScale.of(dataset.train_x)
        truth = scale.pictures(dataset.train_x[np.concatenate(federation.parts)])

        def caught(mean: Vector) -> RecoveredExamples:
            found = examples_in(shaped(mean, [np.asarray(array, np.float64) for array in state]))
            return compare(truth, scale.pictures(found.reshape(len(found), *dataset.input_shape)))

        length = float(np.median([np.linalg.norm(update) for update in updates]))
        clipped = np.mean([clip_norm(update, length)[0] for update in updates], axis=0)
        noisy = {
            z: caught(clipped + stream(seed, "noise", str(z)).normal(0, z * length / cohort, clipped.size))
            for z in self.noise
        }
        public = scale.pictures(dataset.test_x)
        guessed = public[stream(seed, "guessing").choice(len(public), min(bins, len(public)), replace=False)]
        return CraftedRound(
            cohort=cohort,
            bins=bins,
            expected=imprinter.expected(len(truth)),
            bare=caught(opened),
            noisy=noisy,
            guess=compare(truth, guessed),
            refused_for_length=refused_for_length(crafted, honest),
            refused_for_architecture=refused_for_architecture(crafted, honest),
            refused_where_wide=refused_for_architecture(crafted, network(dataset.input_shape, bins, dataset.outputs)),
        )

    def _cases(self) -> Sequence[tuple[int, int]]:
        return [(cohort, bins) for cohort in self.cohorts for bins in self.bins]


def compare(truth: Pictures, found: Pictures) -> RecoveredExamples:
    """Compare every original with the nearest recovered picture, or with a blank one if nothing was recovered."""
    if not len(found):
        found = np.zeros_like(truth[:1])
    beside = found[nearest(truth, found, np.arange(len(found)))]
    exact = np.abs(truth - beside).reshape(len(truth), -1).max(1) < EXACT
    return RecoveredExamples(int(exact.sum()), float(psnr(truth, beside).mean()), truth, beside)


def refused_for_length(sent: nn.Module, agreed: nn.Module) -> bool:
    """Return whether a client refuses the session because the model is longer than its floor allows."""
    floor = Floor(most_length=1 + _numbers(agreed))
    terms = Terms(session=bytes(16), clients=("client", "another"), bits=32, length=1 + _numbers(sent))
    try:
        floor.check(terms, "client")
    except PeerProtocolError:
        return True
    return False


def refused_for_architecture(sent: nn.Module, agreed: nn.Module) -> bool:
    """Return whether a client refuses the model because it pinned the agreed architecture."""
    try:
        check_architecture(sent, architecture(agreed))
    except PeerProtocolError:
        return True
    return False


def _numbers(model: nn.Module) -> int:
    return sum(array.size for array in flatten.read(model))
