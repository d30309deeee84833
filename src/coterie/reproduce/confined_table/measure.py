"""One trial of a row: a grid of many participants, or a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from coterie.errors import ConfigError
from coterie.reproduce.confined_table.grid import play
from coterie.reproduce.confined_table.outcomes import Evaluation, Finding
from coterie.runs.algorithms import algorithm_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.reproduce.confined_table.settings import ConfinedSettings
    from coterie.reproduce.experiment import Job, JobContext, Record
    from coterie.runs.engine.run import RunResult


def measure(settings: ConfinedSettings, job: Job, seed: int, context: JobContext) -> Record | None:
    """Learn in the way of the row; None if ``context.stop`` ended it before the last iteration."""
    if settings.row(job).by == "grid":
        found = play(settings.case(job), seed + job.trial, context.data, context.stop)
    else:
        result = settings.train(job, seed, context)
        found = read_run(result) if result else None
    return msgspec.to_builtins(found) if found else None


def read_run(result: RunResult) -> Finding:
    """Return what a run found; its rounds are the iterations."""
    summary = result.summary
    curve = tuple(_curve(result))
    if not curve:
        raise ConfigError("the run evaluated no model: data needs test examples")
    found = Finding(
        curve=curve,
        iterations=summary.rounds,
        participants=summary.clients,
        rows=0,
        refused=_refused(result),
        epsilon=summary.epsilon,
        bdp=summary.extras.get("bdp"),
        claimed=summary.extras.get("theorem_epsilon"),
        rules=dict(summary.yardstick.rules),
    )
    return msgspec.structs.replace(found, **_late(result))


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
            loss_spread=_recorded(getattr(record, "loss_spread", None)),
            victims=_recorded(getattr(record, "victims", None)),
        )


def _recorded(value: float | None) -> float | UnsetType:
    return UNSET if value is None else value


def _late(result: RunResult) -> dict[str, float | UnsetType]:
    """Return what is known of late gradients, and how often the victims of packet drops and the others were summed."""
    summary, victims = result.summary, set(result.summary.config.faults.victims)
    found = {name: _recorded(summary.extras.get(name)) for name in ("late", "oldest", "late_refused")}
    if victims:
        summed = [name for record in result.records for name in record.aggregated]
        of_victims = sum(name in victims for name in summed)
        found["victim_sums"] = of_victims / (summary.rounds * len(victims))
        found["other_sums"] = (len(summed) - of_victims) / (summary.rounds * (summary.clients - len(victims)))
    return found


def _refused(result: RunResult) -> float | None:
    refused, summary = result.summary.extras.get("refused"), result.summary
    return None if refused is None else refused / max(1, summary.completed * summary.clients)
