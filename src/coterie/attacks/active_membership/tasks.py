"""The two kinds of task that are attacked, classification and regression, and inference from a model's answers.

They differ in the loss, in the rule that decides membership, in the wrong answers that attackers push models to, and in
the score of a model. Targets are labels, or columns of numbers (:class:`~coterie.training.data.datasets.Dataset`).

The rule decides which records are members: in the paper, those that the model classifies correctly. The attack
increases the loss of all targets, and the rule works because honest participants decrease the loss of members again,
and no participant does that for the others. The area under the ROC curve of the loss (Yeom et al. 2018) does not depend
on a threshold, so a badly chosen threshold cannot hide a leak.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.attacks.ranking import area_under_curve
from coterie.cohorts.circles import Mask, Reals
from coterie.confined.network import TrueAnswers
from coterie.errors import ConfigError, InputError
from coterie.training.data.datasets import Dataset

DIVERGED = "training diverges: the step is too large, or the strength of the attack"


class InferenceTask(Protocol):
    """A kind of task: its loss, membership rule, wrong answers and score."""

    score_name: ClassVar[str]
    """The name of the score in texts."""
    threshold_phrase: ClassVar[str]
    """What a model with a certain score does, with a place for the score."""
    rule: ClassVar[str]
    """The rule that decides membership, in words."""
    decoy_words: ClassVar[str]
    """The wrong answers that attackers push models to, in words."""

    @property
    def outputs(self) -> int:
        """The number of outputs of a model."""
        ...

    def losses(self, answers: FloatArray, targets: TrueAnswers) -> Reals:
        """Return the loss of each record, in float64."""
        ...

    def called(self, answers: FloatArray, targets: TrueAnswers) -> Mask:
        """Return which records the rule calls members."""
        ...

    def score(self, answers: FloatArray, targets: TrueAnswers) -> float:
        """Return the score of the answers, at most 1."""
        ...

    def decoys(self, targets: TrueAnswers, rng: np.random.Generator) -> TrueAnswers:
        """Return a wrong answer for each record."""
        ...


@dataclass(frozen=True)
class Classification:
    """Classification: a record that the model classifies correctly is called a member, as in the paper."""

    outputs: int
    score_name: ClassVar[str] = "accuracy"
    threshold_phrase: ClassVar[str] = "classify {} of the targets correctly"
    rule: ClassVar[str] = "the model classifies it correctly (the rule of the paper)"
    decoy_words: ClassVar[str] = "random labels"

    def losses(self, answers: FloatArray, targets: TrueAnswers) -> Reals:
        """Return cross-entropies."""
        shifted = np.asarray(answers, np.float64) - answers.max(axis=1, keepdims=True)
        found: Reals = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(targets)), targets]
        return found

    def called(self, answers: FloatArray, targets: TrueAnswers) -> Mask:
        """Call the records members that are classified correctly."""
        return np.asarray(answers.argmax(axis=1) == targets)

    def score(self, answers: FloatArray, targets: TrueAnswers) -> float:
        """Return the share of correct answers."""
        return float(self.called(answers, targets).mean())

    def decoys(self, targets: TrueAnswers, rng: np.random.Generator) -> TrueAnswers:
        """Return a random wrong label for each record."""
        return np.asarray((targets + rng.integers(1, self.outputs, len(targets))) % self.outputs, np.int64)


@dataclass(frozen=True)
class Regression:
    """Regression: the half of the targets with the smaller errors are called members.

    Attackers know that half of them are. (The code of the paper takes the index of the largest of one output, which is
    the same for every record.)
    """

    outputs: int
    score_name: ClassVar[str] = "explained variance"
    threshold_phrase: ClassVar[str] = "explain {} of the variance of the targets"
    rule: ClassVar[str] = "its squared error is below the median of all targets, half of which are members"
    decoy_words: ClassVar[str] = "numbers that are one deviation off, up or down at random"

    def losses(self, answers: FloatArray, targets: TrueAnswers) -> Reals:
        """Return squared errors, the mean over columns."""
        found: Reals = np.square(np.asarray(answers, np.float64) - targets).mean(axis=1)
        return found

    def called(self, answers: FloatArray, targets: TrueAnswers) -> Mask:
        """Call the records members whose error is below the median; none if all are equal."""
        errors = self.losses(answers, targets)
        return np.asarray(errors < np.median(errors))

    def score(self, answers: FloatArray, targets: TrueAnswers) -> float:
        """Return the share of the variance that is explained: 0 for always predicting the mean, or less."""
        variance = float(np.var(np.asarray(targets, np.float64), axis=0).mean())
        error = float(self.losses(answers, targets).mean())
        if not np.isfinite(error) or not variance:
            raise ConfigError(DIVERGED if variance else "all numbers to predict are equal: there is nothing to learn")
        return 1 - error / variance

    def decoys(self, targets: TrueAnswers, rng: np.random.Generator) -> TrueAnswers:
        """Return numbers one deviation above or below the true ones: equally wrong for every record."""
        return np.asarray(targets + targets.std(axis=0) * rng.choice([-1, 1], targets.shape), targets.dtype)


def task_of(dataset: Dataset) -> InferenceTask:
    """Return the kind of task of a data set."""
    return Regression(dataset.outputs) if dataset.classes is None else Classification(dataset.outputs)


@dataclass(frozen=True)
class Inferred:
    """The result of inference on targets whose membership is known."""

    right: int
    """Members called members and non-members called non-members."""
    targets: int
    members_found: float
    """The share of members that the rule calls members."""
    false_alarms: float
    """The share of non-members that the rule calls members."""
    auc: float

    @property
    def accuracy(self) -> float:
        """The share of right answers: one half without any information."""
        return self.right / self.targets


def infer(task: InferenceTask, answers: FloatArray, targets: TrueAnswers, members: Mask) -> Inferred:
    """Apply the rule of the task, and compare with the truth."""
    if answers.ndim != 2 or len(answers) != len(targets) or members.shape != targets.shape[:1]:
        raise InputError("inference needs a row of outputs, a target and the truth for every record")
    called = task.called(answers, targets)
    return Inferred(
        right=int((called == members).sum()),
        targets=members.size,
        members_found=float(called[members].mean()),
        false_alarms=float(called[~members].mean()),
        auc=area_under_curve(-task.losses(answers, targets), members),
    )


def area_by_chance(members: int, others: int, trials: int) -> float:
    """Return the standard deviation of the mean area over trials if scores are random (Mann and Whitney)."""
    return float(np.sqrt((members + others + 1) / (12 * members * others * trials)))
