"""Records of made-up runs, for tests of pages and console output."""

from dataclasses import replace

import msgspec
import numpy as np

from coterie.arithmetic.quantize import Layout
from coterie.auditing.auditor import Auditor
from coterie.cohorts.ledger import Outcome
from coterie.cohorts.policies import PolicySettings, largest_cohort
from coterie.runs.engine.cohorts import Cohorts, make_selection
from coterie.runs.engine.promise import make_promise
from coterie.runs.engine.protection import make_protection
from coterie.runs.records.promise import Promise
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import ACCURACY, SQUARED_ERROR, Yardstick
from coterie.runs.report.forecasts import Course
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import make_config

CLIENTS = 12
HOSTILE = "<script>window.hacked=1</script> @ink a&amp;b"
FORECAST = replace(
    SQUARED_ERROR, scaling="load in deviations", unit="MW", rules={"previous hour": 0.25, "previous day": 0.5}
)


def make_records(count: int = 30, **more: object) -> list[RoundRecord]:
    """Return rounds with cohorts of whole circles, some of which break; every fifth round has no result."""
    rng = np.random.default_rng(0)
    names, clients, circle = client_names(), CLIENTS, 2
    auditor = Auditor(names)
    records = []
    for number in range(1, count + 1):
        chosen = rng.choice(clients // circle, 3, replace=False)
        members = [names[client] for first in sorted(chosen) for client in range(first * circle, (first + 1) * circle)]
        broken = circle if number % 4 == 0 else 0
        failed = number % 5 == 0
        auditor.add_round(number, () if failed else members[broken:])
        fields: dict[str, object] = {
            "round": number,
            "outcome": (Outcome.SKIPPED if number % 10 else Outcome.ABORTED_AFTER_REVEAL) if failed else "completed",
            "reason": HOSTILE if failed else "",
            "selected": len(members),
            "aggregated": () if failed else tuple(members[broken:]),
            "dropped": tuple(members[: broken // 2]),
            "stranded": tuple(members[broken // 2 : broken]),
            "learning_rate": 0.1,
            "train_loss": 1 / number,
            "test_loss": 2 / number,
            "accuracy": 1 - 0.8 / number,
            "strong_privacy": auditor.strong_privacy,
            "exposed": len(auditor.exposed),
            "fairness_gap": auditor.fairness_gap,
            "cardinality": auditor.cardinality,
            "upload_bytes": 400_000 + 1000 * number,
            "download_bytes": 12_000,
            "seconds": 1.0,
            "train_seconds": 0.6,
            "protect_seconds": 0.3,
        }
        fields |= {"outcome": Outcome(str(fields["outcome"]))} | more
        records.append(RoundRecord(**fields))  # type: ignore[arg-type]
    return records


def client_names() -> tuple[str, ...]:
    return tuple(f"client-{number:02}" for number in range(1, CLIENTS + 1))


def summarised(records: list[RoundRecord], yardstick: Yardstick = ACCURACY, /, **settings: object) -> Summary:
    """Return the summary of records, for a run with these settings, which have __ in place of the dot."""
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    config: RunConfig = make_config({"rounds": max(1, len(records)), "clients.count": CLIENTS, **keys})
    return replace(
        Summary.of(config, client_names(), 1234, records),
        promise=promised(config),
        protocol="a graph",
        assumptions=("Nobody lies.",),
        yardstick=yardstick,
    )


def promised(config: RunConfig) -> Promise:
    """Return what a run with these settings promises."""
    if not config.algorithm.aggregates:
        return make_promise(config, None)
    settings = PolicySettings(np.zeros(config.clients.count), config.cohort.size, config.cohort.privacy)
    circles, policy = make_selection(config, settings, np.random.default_rng(0), None)
    most = largest_cohort(policy, config.clients.count)
    protection = make_protection(config, circles, Layout.of([np.zeros(10)]), most, 1)
    return make_promise(config, Cohorts(circles, policy, (protection,)))


def regression(count: int = 10) -> list[RoundRecord]:
    """Return rounds of a run whose targets are numbers."""
    return [msgspec.structs.replace(record, accuracy=None, error=100 / record.round) for record in make_records(count)]


def courses(count: int = 5) -> list[Course]:
    """Return forecasts of this number of series, each worse than the one before."""
    times = np.datetime64("2018-07-01T00", "h") + np.arange(200)
    truth = 1000 + 100 * np.sin(np.arange(200))
    return [
        Course(f"{HOSTILE} {place}", "MW", times, truth, truth + place, place / 10, 1.0 * place, FORECAST.rules)
        for place in range(count)
    ]
