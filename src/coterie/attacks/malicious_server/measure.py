"""The attack: try every lie on the same clients, without the rule against it and with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from coterie.arithmetic.quantize import Quantizer
from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.malicious_server import inconsistency, invitations, rewinding, sessions
from coterie.attacks.malicious_server.knowledge import leaks
from coterie.attacks.malicious_server.scenario import (
    Lie,
    LieResult,
    Picture,
    Scenario,
    Variation,
    as_picture,
    chance_of,
)
from coterie.attacks.malicious_server.settings import MaliciousServerSettings
from coterie.attacks.malicious_server.variants import VaryingServer
from coterie.errors import ConfigError
from coterie.training.data.datasets import load
from coterie.training.streams import stream

LIES: Mapping[str, Lie] = {
    lie.name: lie for lie in (*sessions.LIES, *rewinding.LIES, *invitations.LIES, *inconsistency.LIES)
}
"""Every lie by its name on the command line."""

MOST = 1000
"""Pictures to choose inputs from."""
PRECISION = 8


@dataclass(frozen=True)
class MaliciousServer(MaliciousServerSettings):
    """All lies, or those that were named, without the rule against each and with it."""

    title: ClassVar[str] = "A server that lies"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lies", self.lies or tuple(LIES))
        super().__post_init__()
        if unknown := [name for name in self.lies if name not in LIES]:
            raise ConfigError(f"there is no lie {unknown[0]!r}; known are {', '.join(LIES)}")

    @property
    def threat(self) -> Adversary:
        """Who attacks, and with what."""
        return threats.malicious_server(self.colluders, self.clients)

    def measure(self, watch: OnProgress) -> list[LieResult]:
        """Try every lie on the same victims, without the rule against it and with it."""
        total = len(self.lies) * (self.trials + self.tries)
        results = []
        for place, name in enumerate(self.lies):
            lie, begun = LIES[name], place * (self.trials + self.tries)
            attempts = []
            for trial in range(self.trials):
                watch(lie.title, (begun + trial) / total)
                scenario = self._scenario(trial)
                attempts.append((lie.play(scenario, False), lie.play(scenario, True)))
            varied: list[Variation] = []
            for trial in range(self.trials, self.trials + self.tries):
                watch(f"{lie.title}, varied", (begun + trial) / total)
                varied += self._vary(lie, trial)
            without, against = zip(*attempts, strict=True)
            chance = chance_of(against, stream(self.seed, "guesses", name))
            results.append(LieResult(lie, without, against, varied, chance))
        return results

    def _scenario(self, trial: int) -> Scenario:
        chosen = stream(self.seed, "inputs", trial).permutation(len(self._pictures))[: self.clients]
        rounding = stream(self.seed, "rounding", trial)
        return Scenario(
            self.active,
            self.privacy,
            self.clients,
            self.colluders,
            self.quantizer.ring,
            [self.quantizer.encode(self._pictures[index].ravel(), rounding).vector for index in chosen],
            seed=1_000_000 * self.seed + trial,
            data=self.data,
            data_dir=self.data_dir,
        )

    def _vary(self, lie: Lie, trial: int) -> Sequence[Variation]:
        """Play a varied lie with and without the rule; return nothing if the lie is not part of a session."""
        sides = []
        for defended in False, True:
            rng = stream(self.seed, "variation", lie.name, trial)
            attempt = lie.play(replace(self._scenario(trial), variation=rng), defended)
            servers = [server for server in attempt.servers if isinstance(server, VaryingServer)]
            if not servers:
                return ()
            # If clients trust the server, check only for the input that the lie aims at.
            leaked = self.active and defended and any(server.answered_again or leaks(server) for server in servers)
            sides.append((attempt.exact or leaked, sum(server.asked for server in servers)))
        (baseline, _), (broken, asked) = sides
        return (Variation(baseline, broken, asked),)

    @property
    def typical(self) -> Picture:
        """The mean of all pictures: the best guess of an attacker who knows only the kind of pictures."""
        return np.asarray(np.mean(self._pictures, axis=0))

    @cached_property
    def _pictures(self) -> Sequence[Picture]:
        dataset = load(self.data, self.data_dir)
        if len(dataset.input_shape) != 3:
            raise ConfigError(f"{self.data!r} has no pictures, which this attack needs")
        return [as_picture(example) for example in dataset.test_x[:MOST]]

    @property
    def quantizer(self) -> Quantizer:
        """The encoding of pictures."""
        return Quantizer(1.0, PRECISION, self.clients)
