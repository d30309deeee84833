"""The evaluation of a run's models on the test examples of single clients, after its last round."""

import math
from collections.abc import Mapping

import numpy as np

from coterie.cohorts.circles import Indices
from coterie.errors import InputError
from coterie.runs.engine.build import BuiltRun
from coterie.runs.engine.federation import Federation
from coterie.runs.records.client_scores import OWN_MODEL, Basis, ClientScore, ClientScores
from coterie.training.evaluate import Score, evaluate
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData
from coterie.training.metrics import Compute

Values = dict[str, float | None]


def score_clients(built: BuiltRun) -> ClientScores | None:
    """Score the models on each client's examples; None without test examples, or if scores may not be recorded.

    With noise nothing is scored: the scores show the clients' data without it.
    """
    federation, algorithm = built.federation, built.algorithm
    basis = federation.basis
    if built.noisy or not len(federation.test) or (basis is Basis.COMMON and not algorithm.personal):
        return None
    models = built.strategy.models()
    names = built.scored(list(federation.parts))
    common = [name for name in models if not algorithm.personal or name in algorithm.aside]
    found: dict[str, dict[str, Values]] = {name: {} for name in names}
    if algorithm.personal:
        for name in names:
            found[name][OWN_MODEL] = _score(federation, models[name], [name])[name]
    for model in common:
        for name, values in _score(federation, models[model], names).items():
            found[name][model] = values
    rows = [ClientScore(name, federation.parts[name].size, federation.tests(name).size, found[name]) for name in names]
    compared = OWN_MODEL if algorithm.personal else common[0]
    return ClientScores(basis, compared, rows, len(federation.parts))


def _score(federation: Federation, state: ModelArrays, clients: list[str]) -> Mapping[str, Values]:
    """Return the scores of one model for several clients."""
    if federation.basis is Basis.PROPORTIONS:
        return _in_proportion(federation, state, clients)
    if federation.basis is Basis.COMMON:
        return dict.fromkeys(clients, _values(federation, state, federation.tests("")))
    return {name: _values(federation, state, federation.tests(name)) for name in clients}


def _in_proportion(federation: Federation, state: ModelArrays, clients: list[str]) -> Mapping[str, Values]:
    """Return means over the labels of the scores for each label, weighted by how often a client has it.

    Labels without test examples are left out; a client that has only such labels has no score.
    """
    chosen = federation.tests("")
    labels = federation.test.y[chosen]
    scores = {
        int(label): _evaluate(federation, state, chosen[labels == label], {}) for label in np.unique(labels).tolist()
    }
    found: dict[str, Values] = {}
    for name in clients:
        had, counts = np.unique(_labels(federation)[federation.parts[name]], return_counts=True)
        shares = {int(label): int(count) for label, count in zip(had, counts, strict=True) if int(label) in scores}
        total = sum(shares.values())
        found[name] = {
            "loss": math.fsum(count * scores[label].loss for label, count in shares.items()) / total if total else None,
            "accuracy": (
                math.fsum(count * (scores[label].accuracy or 0.0) for label, count in shares.items()) / total
                if total
                else None
            ),
        }
    return found


def _labels(federation: Federation) -> Indices:
    if federation.labels is None:
        raise InputError("proportions of labels need labels")
    return federation.labels


def _values(federation: Federation, state: ModelArrays, chosen: Indices) -> Values:
    """Return the loss, accuracy and metrics on these test examples; a metric that fails on them is None."""
    score = _evaluate(federation, state, chosen, {})
    values: Values = {"loss": score.loss, "accuracy": score.accuracy}
    for name, compute in federation.metrics.items():
        try:
            values[name] = _evaluate(federation, state, chosen, {name: compute}).metrics[name]
        except InputError:  # such as a metric that needs examples of two classes
            values[name] = None
    return values


def _evaluate(federation: Federation, state: ModelArrays, chosen: Indices, metrics: Mapping[str, Compute]) -> Score:
    data = ArrayData(federation.test.x[chosen], federation.test.y[chosen])
    return evaluate(federation.problem, state, data, metrics=metrics)
