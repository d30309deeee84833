"""``coterie bench audit`` and ``coterie bench ledger``: what audits and ledgers cost, and how the cost grows."""

from typing import TYPE_CHECKING, Any

from coterie.bench.settings import AuditSettings, LedgerSettings
from coterie.cli.bench_tables import show_costs, show_targets
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from coterie.bench.audit import AuditCost
    from coterie.bench.ledger import LedgerCost, Work


@with_options
def audit(settings: AuditSettings, as_json: AsJson = False) -> None:
    """Audit logs of several sizes, and print two tables."""
    from coterie.bench.audit import growth_cases, measure_case, target_cases

    targets, growth = target_cases(quick=settings.quick), growth_cases(quick=settings.quick)
    with progress_bars(as_json) as progress:
        task = progress.add_task("Audits", total=len(targets) + sum(map(len, growth.values())))

        def measure(case: Any) -> "AuditCost":  # noqa: ANN401 - importing its type takes long
            shown = f"{case.clients:,} clients, {case.rounds:,} rounds of {case.cohort:,}, {case.kind}"
            progress.update(task, description=shown)
            cost = measure_case(case, settings.log_format, settings.seed)
            progress.advance(task)
            return cost

        measured = [measure(case) for case in targets]
        grown = {name: [measure(case) for case in cases] for name, cases in growth.items()}
    if as_json:
        series = {name: list(map(_audit_record, costs)) for name, costs in grown.items()}
        print_json({"targets": list(map(_audit_record, measured)), "growth": series})
    else:
        _show_audits(measured, grown)


@with_options
def ledger(settings: LedgerSettings, as_json: AsJson = False) -> None:
    """Record rounds, open, verify and audit the ledger, and print the costs."""
    from functools import partial
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from coterie.bench.ledger import measure_ledger

    # In the current folder: a temporary directory may be in memory, where a ledger is unrealistically fast.
    with TemporaryDirectory(prefix="coterie-bench-", dir=".") as folder, progress_bars(as_json) as progress:
        task = progress.add_task("Rounds", total=settings.rounds)
        location = settings.database or str(Path(folder, "ledger.sqlite"))
        cost = measure_ledger(settings, location, partial(progress.advance, task))
    if as_json:
        print_json(_ledger_record(cost))
    else:
        _show_ledger(cost)


def _audit_record(cost: "AuditCost") -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(cost), "seconds": cost.seconds, "reading_ratio": cost.reading_ratio}


def _ledger_record(cost: "LedgerCost") -> dict[str, Any]:
    from dataclasses import asdict
    from statistics import median

    record = asdict(cost)
    del record["append_seconds"]
    return {
        **record,
        "append_median_seconds": median(cost.append_seconds),
        "append_slowdown": cost.slowdown,
        "bytes_per_participation": cost.bytes_per_participation,
    }


def _show_audits(measured: "list[AuditCost]", grown: "dict[str, list[AuditCost]]") -> None:
    kinds: dict[str, list[AuditCost]] = {}
    for cost in measured:
        kinds.setdefault(f"Clients x rounds x cohort, {cost.case.kind}", []).append(cost)
    for title, costs in kinds.items():
        show_costs(title, ("size", "T", "exposed", "time", "/ reading", "memory"), map(_findings, costs))
    show_targets([target for cost in measured for target in cost.targets])
    rows = [[name, *_growth(cost)] for name, costs in grown.items() for cost in costs]
    show_costs("How it grows", ("doubled", "size", "exposed", "time", "processor", "memory"), rows)
    new_console().print(
        "Time: wall-clock time from the file to the findings, without weak T or starting Python; then relative "
        "to reading alone. Processor: processor time. Memory: peak of the process. Targets are for two idle cores.",
        style="dim",
    )


def _findings(cost: "AuditCost") -> list[str]:
    ratio = f"{cost.reading_ratio:.2f}x"
    found = (f"{cost.strong_privacy}", f"{cost.exposed:,}")
    return [cost.size, *found, duration(cost.seconds), ratio, size(cost.peak_rss_bytes)]


def _growth(cost: "AuditCost") -> list[str]:
    spent = (duration(cost.seconds), duration(cost.processor_seconds), size(cost.peak_rss_bytes))
    return [cost.size, f"{cost.exposed:,}", *spent]


def _show_ledger(cost: "LedgerCost") -> None:
    from statistics import median

    from rich.table import Table

    console = new_console()
    console.print(
        f"[bold]{cost.rounds:,} rounds of {cost.cohort:,} clients[/bold], of {cost.clients:,} in all: "
        f"{count(cost.entries, 'entry', 'entries')} with {size(cost.entry_bytes)}, "
        f"{cost.bytes_per_participation:.2f} bytes for a client in a round, and "
        f"{count(cost.checkpoints, 'checkpoint')} with {size(cost.checkpoint_bytes)}."
    )
    table = Table("", title_justify="left")
    for heading in ("time", "processor", "memory"):
        table.add_column(heading, justify="right")
    table.add_row(
        "record a round (median)", duration(median(cost.append_seconds)), duration(cost.append_processor_seconds), ""
    )
    table.add_row("open the ledger again", *_cells(cost.opening))
    table.add_row("verify all of it", *_cells(cost.verifying))
    table.add_row("audit it", *_cells(cost.auditing))
    console.print(table)
    console.print(
        f"Opening reads {count(cost.replayed, 'entry', 'entries')} after the last checkpoint. Rounds at the end take "
        f"{cost.slowdown:.2f}x the time of those at the beginning. Verifying and auditing read everything."
    )
    console.print("Time: wall-clock time. Memory: peak of the process.", style="dim")


def _cells(work: "Work") -> list[str]:
    return [duration(work.seconds), duration(work.processor_seconds), size(work.peak_rss_bytes)]
