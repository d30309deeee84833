"""Membership scores: a number for each candidate; a larger score means that it looks more like a member.

All of them use the model's confidence in the right label, on the scale of Carlini et al. (2022),

    phi = log(p / (1 - p)),

where p is the probability of the right label. They differ in what they compare it with. All but the first need
*reference models*: models that the attacker trains like the victim's, with known candidates in each. The "in" models of
a candidate are those that were trained on it, its "out" models are the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.cohorts.circles import Indices, Mask, Reals
from coterie.errors import ConfigError

_SHOWN = 3  # largest probabilities that an attack model sees, as in Shokri et al. (2017), section VI-B
_REACH = 30.0  # larger phi carries no information; the limit keeps an attack model from overflowing
_LEAST_DEVIATION = 1e-6
_RIDGE = 1e-3
_NEWTON_STEPS = 30

GAMMA = 1.0
"""RMIA's threshold gamma: the factor by which a member's ratio must exceed that of a stranger."""


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """A model's answers: phi for candidates and for strangers (which no client trains on), and the largest log-odds."""

    candidates: Reals
    strangers: Reals
    top: Reals
    """Candidates x 3: the log-odds of the three largest probabilities, in descending order."""

    @classmethod
    def of(
        cls,
        candidates: npt.NDArray[np.floating[Any]],
        labels: Indices,
        strangers: npt.NDArray[np.floating[Any]],
        stranger_labels: Indices,
    ) -> "ModelAnswers":
        """Compute them from a model's outputs (logits, examples x classes)."""
        everything = np.stack([log_odds(candidates, np.full_like(labels, one)) for one in range(candidates.shape[1])])
        largest = -np.sort(-everything, axis=0)[:_SHOWN].T
        return cls(log_odds(candidates, labels), log_odds(strangers, stranger_labels), largest)


@dataclass(frozen=True, eq=False)
class References:
    """Reference models: the answers of each, and which candidates it was trained on (models x candidates)."""

    answers: Sequence[ModelAnswers]
    members: Mask

    def __post_init__(self) -> None:
        counts = self.members.sum(0)
        if len(self.answers) != len(self.members) or not ((counts > 0) & (counts < len(self.members))).all():
            raise ConfigError("every candidate needs a reference model that was trained on it, and one that was not")

    def without(self, models: Sequence[int]) -> "References":
        """Return all models except these, to try the attack on them."""
        kept = [model for model in range(len(self.answers)) if model not in models]
        return self.only(kept)

    def only(self, models: Sequence[int]) -> "References":
        """Return these models only."""
        return References([self.answers[model] for model in models], self.members[list(models)])

    @property
    def confidences(self) -> Reals:
        """Phi of all candidates, models x candidates."""
        return np.stack([answer.candidates for answer in self.answers])


def log_odds(outputs: npt.NDArray[np.floating[Any]], labels: Indices) -> Reals:
    """Return log(p / (1 - p)) of each example's label: its output less the logarithm of the summed others."""
    outputs = outputs.astype(np.float64)
    rows = np.arange(len(labels))
    chosen = outputs[rows, labels]
    outputs[rows, labels] = -np.inf
    largest = outputs.max(1)
    return np.asarray(chosen - largest - np.log(np.exp(outputs - largest[:, None]).sum(1)))


def by_loss(seen: ModelAnswers, references: References) -> Reals:
    """Score by a small loss (Yeom et al. 2018): the loss log(1 + exp(-phi)) decreases as phi grows."""
    return seen.candidates


def by_shadows(seen: ModelAnswers, references: References) -> Reals:
    """Score by an attack model that is trained on shadow models (Shokri et al. 2017).

    It is a logistic regression on phi and the three largest log-odds; one for all classes, because there are few
    candidates.
    """
    weights = fit_logistic(
        np.concatenate([_features(answer) for answer in references.answers]), references.members.ravel()
    )
    return _with_constant(_features(seen)) @ weights


def by_likelihood(seen: ModelAnswers, references: References) -> Reals:
    """Score by the ratio of likelihoods of phi if the candidate is in and if it is out (LiRA, Carlini et al. 2022).

    log N(phi; m_in, s_in) - log N(phi; m_out, s_out), where m_in and m_out are the means over the candidate's in and
    out models, and s_in and s_out deviations common to all candidates, as the paper advises if models are few.
    """
    phi = references.confidences
    (m_in, s_in), (m_out, s_out) = (_normal(phi, members) for members in (references.members, ~references.members))
    ratio: Reals = ((seen.candidates - m_out) / s_out) ** 2 / 2 - ((seen.candidates - m_in) / s_in) ** 2 / 2
    return np.asarray(ratio + np.log(s_out / s_in))


def by_strangers(seen: ModelAnswers, references: References) -> Reals:
    """Score by comparing with strangers (RMIA, Zarifzadeh et al. 2024).

    The share of strangers z with [p(x | model) / p(x)] / [p(z | model) / p(z)] >= gamma, where p(x) is the mean of
    the references' answers, with equal weight of in and out models. As a count, it has many ties.
    """
    p = np.exp(_log_sigmoid(references.confidences))
    inside = references.members
    typical = ((p * inside).sum(0) / inside.sum(0) + (p * ~inside).sum(0) / (~inside).sum(0)) / 2
    typical_stranger = np.exp(_log_sigmoid(np.stack([answer.strangers for answer in references.answers]))).mean(0)
    own = _log_sigmoid(seen.candidates) - _logarithm(typical)
    others = np.sort(_log_sigmoid(seen.strangers) - _logarithm(typical_stranger))
    return np.asarray(np.searchsorted(others, own - np.log(GAMMA), side="right") / others.size)


MembershipScore: TypeAlias = Callable[[ModelAnswers, References], Reals]
SCORES: Mapping[str, MembershipScore] = {
    "loss": by_loss,
    "shadow": by_shadows,
    "lira": by_likelihood,
    "rmia": by_strangers,
}
"""The attacks by name, the weakest first."""


def fit_logistic(features: Reals, labels: Mask) -> Reals:
    """Return the weights, the constant last, that minimise mean log(1 + exp(-y w x)) + ridge / 2 |w|^2, by Newton."""
    x, y = _with_constant(features), labels.astype(np.float64)
    weights = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = np.exp(_log_sigmoid(x @ weights))
        gradient = x.T @ (p - y) / y.size + _RIDGE * weights
        curvature = (x * (p * (1 - p))[:, None]).T @ x / y.size + _RIDGE * np.eye(weights.size)
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def _features(answer: ModelAnswers) -> Reals:
    # Scaled to about 1 for any useful model, so that the ridge has the same effect on all of them.
    return np.clip(np.column_stack([answer.candidates, answer.top]), -_REACH, _REACH) / 10


def _with_constant(features: Reals) -> Reals:
    return np.column_stack([features, np.ones(len(features))])


def _normal(phi: Reals, chosen: Mask) -> tuple[Reals, float]:
    """Return the mean over the chosen models for each candidate, and the deviation from it over all of them.

    With a single model for each candidate the deviation cannot be estimated, and is set to 1.
    """
    counts = chosen.sum(0)
    means = (phi * chosen).sum(0) / counts
    freedom = int(counts.sum()) - counts.size
    variance = float((chosen * (phi - means) ** 2).sum()) / freedom if freedom else 1.0
    return means, max(_LEAST_DEVIATION, variance**0.5)


def _log_sigmoid(values: Reals) -> Reals:
    return -np.logaddexp(0, -values)


def _logarithm(shares: Reals) -> Reals:
    return np.log(np.maximum(shares, np.finfo(np.float64).tiny))
