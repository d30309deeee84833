"""Records of an attack: the training examples of participants, the targets of inference, and the test examples.

Members and non-members must not differ in anything but membership. So all examples of a data set, from its training
file and its test file, are shuffled together. Each participant gets a share, attackers also get non-members as targets,
and some of the rest are for testing. Without any information, a rule is then right half of the time.
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
    """Rows of features with their targets. If several participants own them, each owns a block of the same size."""

    x: FloatArray = field(repr=False)
    y: TrueAnswers = field(repr=False)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class DealtRecords:
    """Honest participants and attackers, with the records of each."""

    honest: Records
    """The training examples of the honest participants."""
    cover: Records
    """The attackers' own examples, which they train on before they attack."""
    targets: Records
    """The records whose membership is inferred; for each attacker, members come first."""
    decoys: TrueAnswers = field(repr=False)
    """Wrong answers for the targets, the same in all rounds."""
    test: Records
    """Examples that are neither trained on nor targets."""
    participants: int
    """The number of honest participants."""
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
        cover: int = 0,
        tests: int = 2000,
        data_dir: Path | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Deal ``examples`` to every participant, and as many targets to each attacker, half of them members.

        Attackers get ``cover`` examples in place of these if it is not 0. At most ``tests`` of the others are test
        examples.
        """
        dataset = _loaded(data, data_dir, tuple(sorted((options or {}).items())))
        half = examples // 2
        if participants < 2 or malicious < 1 or half < 1 or malicious * half > participants * examples:
            raise ConfigError(
                f"{participants} honest participants, {malicious} malicious ones, {examples} examples each: there must "
                "be 2, 1 and 2 at least, and members enough for the attackers to ask about"
            )
        ends = np.cumsum([participants * examples, malicious * (cover or examples), malicious * half, tests])
        rng = stream(seed, "deal")
        rows = rng.permutation(len(dataset.train_x) + len(dataset.test_x))
        if rows.size <= ends[2]:
            raise ConfigError(f"{data!r} has {rows.size} examples and {ends[2]} are dealt: none are left to test with")
        honest, covering, outside, test = np.split(rows[: ends[3]], ends[:3])
        inside = rng.permutation(honest)[: malicious * half]
        targets = np.concatenate([inside.reshape(malicious, half), outside.reshape(malicious, half)], axis=1).ravel()

        def dealt(chosen: Indices) -> Records:
            x = _rows(dataset.train_x, dataset.test_x, chosen)
            y = _rows(dataset.train_y, dataset.test_y, chosen)
            return Records(np.asarray(x, np.float32).reshape(len(x), -1), y)

        asked, task = dealt(targets), task_of(dataset)
        return cls(
            honest=dealt(honest),
            cover=dealt(covering),
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
        """Whether an honest participant trains on each target. Only the score uses this."""
        each = len(self.targets) // self.malicious
        return np.tile(np.arange(each) < each // 2, self.malicious)


@lru_cache(3)
def _loaded(name: str, folder: Path | str | None, options: tuple[tuple[str, Any], ...]) -> Dataset:
    """Read a data set once for all trials and methods."""
    return load(name, folder, **dict(options))


def _rows(train: npt.NDArray[Any], test: npt.NDArray[Any], rows: Indices) -> npt.NDArray[Any]:
    """Return rows of two arrays that are numbered consecutively, without concatenating them."""
    first = rows < len(train)
    found = np.empty((rows.size, *train.shape[1:]), train.dtype)
    found[first], found[~first] = train[rows[first]], test[rows[~first] - len(train)]
    return found
