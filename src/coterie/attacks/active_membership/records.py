"""The scene: who trains on what, which records the attackers ask about, and what is left to test with.

Members and non-members must differ in nothing but membership. So all examples of a data set, those of its training file
and those of its test file, are shuffled together and dealt anew: to every participant a share, to the attackers records
that nobody trains on, and of the rest some to test with. A rule that knows nothing is then right half the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import FloatArray
from coterie.attacks.active_membership.tasks import InferenceTask, task_of
from coterie.cohorts.circles import Indices, Mask
from coterie.confined.network import TrueAnswers
from coterie.errors import ConfigError
from coterie.training.data.datasets import Dataset, load
from coterie.training.streams import stream


@dataclass(frozen=True, eq=False)
class Records:
    """Rows of features with their targets; where they are dealt to several, one after the other, equally many each."""

    x: FloatArray = field(repr=False)
    y: TrueAnswers = field(repr=False)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class MembershipScene:
    """Honest participants and attackers with what each has."""

    honest: Records
    """What the honest participants train on."""
    cover: Records
    """What is the attackers' own; they train on it like anybody else, before they attack."""
    targets: Records
    """The records that the attackers ask about; for each attacker first those that are members."""
    decoys: TrueAnswers = field(repr=False)
    """Wrong answers for the targets, fixed for good."""
    test: Records
    """What nobody trains on and nobody asks about."""
    participants: int
    """How many are honest."""
    malicious: int
    task: InferenceTask
    seed: int

    @classmethod
    def deal(
        cls,
        data: str,
        participants: int,
        malicious: int,
        examples: int,
        seed: int,
        *,
        tests: int = 2000,
        data_dir: Path | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Deal so many ``examples`` to everybody, and as many targets to each attacker, half of them members.

        At most ``tests`` of the others are there to test with.
        """
        dataset = _loaded(data, data_dir, tuple(sorted((options or {}).items())))
        half = examples // 2
        if participants < 2 or malicious < 1 or half < 1 or malicious * half > participants * examples:
            raise ConfigError(
                f"{participants} honest participants, {malicious} malicious ones, {examples} examples each: there must "
                "be 2, 1 and 2 at least, and members enough for the attackers to ask about"
            )
        ends = np.cumsum([participants * examples, malicious * examples, malicious * half, tests])
        rng = stream(seed, "deal")
        rows = rng.permutation(len(dataset.train_x) + len(dataset.test_x))
        if rows.size <= ends[2]:
            raise ConfigError(f"{data!r} has {rows.size} examples and {ends[2]} are dealt: none are left to test with")
        honest, cover, outside, test = np.split(rows[: ends[3]], ends[:3])
        inside = rng.permutation(honest)[: malicious * half]
        targets = np.concatenate([inside.reshape(malicious, half), outside.reshape(malicious, half)], axis=1).ravel()

        def dealt(chosen: Indices) -> Records:
            x = _rows(dataset.train_x, dataset.test_x, chosen)
            y = _rows(dataset.train_y, dataset.test_y, chosen)
            return Records(np.asarray(x, np.float32).reshape(len(x), -1), y)

        asked, task = dealt(targets), task_of(dataset)
        return cls(
            honest=dealt(honest),
            cover=dealt(cover),
            targets=asked,
            decoys=task.decoys(asked.y, rng),
            test=dealt(test),
            participants=participants,
            malicious=malicious,
            task=task,
            seed=seed,
        )

    @property
    def members(self) -> Mask:
        """Which targets an honest participant trains on: the truth, which the score alone is told."""
        each = len(self.targets) // self.malicious
        return np.tile(np.arange(each) < each // 2, self.malicious)


@lru_cache(3)
def _loaded(name: str, folder: Path | str | None, options: tuple[tuple[str, Any], ...]) -> Dataset:
    """Read a data set once for all trials and methods."""
    return load(name, folder, **dict(options))


def _rows(train: npt.NDArray[Any], test: npt.NDArray[Any], rows: Indices) -> npt.NDArray[Any]:
    """Return rows of two arrays, numbered through, without a copy of all of both."""
    first = rows < len(train)
    found = np.empty((rows.size, *train.shape[1:]), train.dtype)
    found[first], found[~first] = train[rows[first]], test[rows[~first] - len(train)]
    return found
