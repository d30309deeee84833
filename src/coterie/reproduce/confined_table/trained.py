"""Rows that are runs: what ``coterie run`` does with the same settings, told as a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.errors import ConfigError
from coterie.reproduce.confined_table.outcomes import Evaluation, Finding
from coterie.runs.algorithms import algorithm_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.runs.engine.run import RunResult


def told(result: RunResult) -> Finding:
    """Return what a run found; its rounds are the iterations."""
    summary = result.summary
    curve = tuple(_curve(result))
    if not curve:
        raise ConfigError("the run evaluated no model: data needs test examples")
    return Finding(
        curve=curve,
        iterations=summary.rounds,
        participants=summary.clients,
        rows=0,
        refused=_refused(result),
        epsilon=summary.epsilon,
        bdp=summary.extras.get("bdp"),
        claimed=summary.extras.get("claimed_epsilon"),
        rules=dict(summary.yardstick.rules),
    )


def _curve(result: RunResult) -> Iterator[Evaluation]:
    personal = algorithm_of(result.summary.config).personal
    for record in result.records:
        score = result.summary.yardstick.of(record)
        if score is None or record.test_loss is None:
            continue
        yield Evaluation(
            iteration=record.round,
            score=score,
            loss=record.test_loss,
            spread=getattr(record, "spread", None),
            worst=getattr(record, "worst", None),
            displacement=getattr(record, "displacement", None),
            models=result.summary.clients if personal else 1,
        )


def _refused(result: RunResult) -> float | None:
    refused, summary = result.summary.extras.get("refused"), result.summary
    return None if refused is None else refused / max(1, summary.completed * summary.clients)
