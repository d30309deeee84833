"""Membership scores, compared with their formulas, and the records of in and out models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from scipy.stats import norm

from coterie.attacks.membership.measure import rehearse
from coterie.attacks.membership.scores import (
    SCORES,
    ModelAnswers,
    References,
    by_likelihood,
    by_strangers,
    fit_logistic,
    log_odds,
)
from coterie.attacks.ranking import Roc
from coterie.cohorts.circles import Mask, Reals
from coterie.errors import ConfigError


def answer(candidates: Reals, strangers: Reals | None = None) -> ModelAnswers:
    others = np.array([0.0, 1.0, -1.0]) if strangers is None else strangers
    return ModelAnswers(candidates, others, np.repeat(candidates[:, None], 3, axis=1))


def paired(rng: np.random.Generator, pairs: int, candidates: int) -> Mask:
    """Members of reference models in complementary pairs."""
    half = np.stack([rng.permutation(candidates) < candidates // 2 for _ in range(pairs)])
    return np.stack([half, ~half], axis=1).reshape(2 * pairs, candidates)


def planted(rng: np.random.Generator, members: Mask, memory: float) -> Reals:
    """Return phi of models that are more confident in what they were trained on, by ``memory`` deviations."""
    hardness = stretched(members.shape[1])
    return hardness + memory * members + rng.standard_normal(members.shape)


def stretched(candidates: int) -> Reals:
    """Return so different difficulties of candidates that no single threshold separates members from others."""
    return np.linspace(-40, 40, candidates)


def test_log_odds_are_those_of_the_softmax() -> None:
    rng = np.random.default_rng(0)
    outputs, labels = rng.standard_normal((50, 7)), rng.integers(0, 7, 50)
    p = softmax(outputs, axis=1)[np.arange(50), labels]
    assert np.allclose(log_odds(outputs, labels), np.log(p / (1 - p)))
    assert np.isfinite(log_odds(1e4 * outputs, labels)).all()


@pytest.mark.parametrize("name", ["lira", "rmia"])
def test_planted_members_are_all_found(name: str) -> None:
    """Candidates differ more in difficulty than by membership."""
    rng = np.random.default_rng(1)
    members, victim = paired(rng, 8, 40), rng.permutation(40) < 20
    hardness = np.linspace(-4, 4, 40) if name == "rmia" else stretched(40)  # RMIA reads probabilities, which saturate
    memory, spread = (4.0, 0.05) if name == "rmia" else (60.0, 1.0)

    def answers(chosen: Mask) -> Reals:
        return np.asarray(hardness + memory * (chosen - 0.5) + spread * rng.standard_normal(chosen.shape))

    strangers = np.full(200, -1.0)
    references = References([answer(row, strangers) for row in answers(members)], members)
    seen = answer(answers(victim[None])[0], strangers)
    assert Roc.of(SCORES[name](seen, references), victim).area == 1.0


def test_in_and_out_models_are_recorded_as_trained() -> None:
    """With in and out exchanged in the records, the same scores are wrong about every candidate."""
    rng = np.random.default_rng(2)
    members, victim = paired(rng, 8, 40), rng.permutation(40) < 20
    answers = [answer(row) for row in planted(rng, members, 60)]
    seen = answer(planted(rng, victim[None], 60)[0])
    assert Roc.of(by_likelihood(seen, References(answers, members)), victim).area == 1.0
    assert Roc.of(by_likelihood(seen, References(answers, ~members)), victim).area == 0.0


def test_lira_is_the_ratio_of_two_normal_densities() -> None:
    rng = np.random.default_rng(3)
    members = paired(rng, 5, 12)
    phi, seen = planted(rng, members, 2), rng.standard_normal(12)
    found = by_likelihood(answer(seen), References([answer(row) for row in phi], members))
    expected = np.zeros(12)
    for sign, chosen in (1, members), (-1, ~members):
        means = np.array([phi[chosen[:, x], x].mean() for x in range(12)])
        residuals = np.concatenate([phi[chosen[:, x], x] - means[x] for x in range(12)])
        deviation = np.sqrt((residuals**2).sum() / (residuals.size - 12))
        expected += sign * norm.logpdf(seen, means, deviation)
    assert np.allclose(found, expected)


def test_rmia_is_the_share_of_strangers_with_a_smaller_gain() -> None:
    rng = np.random.default_rng(4)
    members = paired(rng, 3, 8)
    phi, strange = rng.standard_normal((6, 8)), rng.standard_normal((6, 25))
    seen = answer(rng.standard_normal(8), rng.standard_normal(25))
    references = References([answer(*rows) for rows in zip(phi, strange, strict=True)], members)
    expected = []
    for x in range(8):
        typical = (expit(phi[members[:, x], x]).mean() + expit(phi[~members[:, x], x]).mean()) / 2
        gain = expit(seen.candidates[x]) / typical
        expected.append(np.mean([gain >= expit(seen.strangers[z]) / expit(strange[:, z]).mean() for z in range(25)]))
    assert np.allclose(by_strangers(seen, references), expected)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_the_fitted_attack_model_is_optimal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((60, 3)), rng.random(60) < 0.5
    weights = fit_logistic(x, y)
    wide = np.column_stack([x, np.ones(60)])
    gradient = wide.T @ (expit(wide @ weights) - y) / 60 + 1e-3 * weights
    assert np.abs(gradient).max() < 1e-8


def test_every_candidate_needs_in_and_out_models() -> None:
    with pytest.raises(ConfigError, match="trained on it"):
        References([answer(np.zeros(3)), answer(np.zeros(3))], np.array([[True, True, False], [True, False, True]]))


def test_thresholds_are_tuned_without_the_attacked_pair() -> None:
    """A model reveals the members of its complement, so neither may be a reference when the other is attacked."""
    rng = np.random.default_rng(5)
    references = References([answer(row) for row in rng.standard_normal((6, 10))], paired(rng, 3, 10))
    asked: list[tuple[ModelAnswers, References]] = []

    def spy(seen: ModelAnswers, others: References) -> Reals:
        asked.append((seen, others))
        return seen.candidates

    rehearse(spy, references)
    assert [seen for seen, _ in asked] == list(references.answers)
    for number, (_, others) in enumerate(asked):
        kept = [model for model in range(6) if model // 2 != number // 2]
        assert others.answers == [references.answers[model] for model in kept]
        assert (others.members == references.members[kept]).all()


def test_an_uncertain_model_reveals_nothing() -> None:
    """Answers that do not depend on the victim's members: AUC within 4 deviations of guessing for every attack."""
    rng = np.random.default_rng(6)
    members = paired(rng, 8, 100)
    references = References([answer(row) for row in planted(rng, members, 3)], members)
    for score in SCORES.values():
        areas = []
        for _ in range(40):
            victim = rng.permutation(100) < 50
            areas.append(Roc.of(score(answer(planted(rng, np.zeros((1, 100), bool), 3)[0]), references), victim).area)
        assert abs(np.mean(areas) - 0.5) < 4 * np.std(areas) / np.sqrt(40)
