"""The page on a run, ``report.html``: quality, privacy, fairness and costs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from coterie.auditing.auditor import Auditor, audit
from coterie.auditing.logs import Participation
from coterie.auditing.verdict import Measure
from coterie.reports.charts import Figure
from coterie.reports.html import render
from coterie.reports.words import duration, size
from coterie.runs.algorithms import algorithm_of
from coterie.runs.records.client_scores import Basis
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.report.figures import FIGURES, PageContents, failures
from coterie.runs.report.forecasts import Course
from coterie.runs.report.words import headline_of, how_to_continue, in_words, level_of
from coterie.runs.settings.toml import to_toml

_WEAK_SECONDS = 5.0  # short time limit for weak T, which is only a note on this page
_FAILURES = 100


def run_page(
    summary: Summary,
    clients: Sequence[str],
    records: Sequence[RoundRecord],
    folder: str,
    courses: Sequence[Course] = (),
    auditor: Auditor | None = None,
) -> str:
    """Return a self-contained HTML page about a run.

    ``courses`` are its forecasts, if it has any. ``auditor`` has audited its rounds; without it, they are audited here.
    """
    words = dict(in_words(summary))
    contents = PageContents(summary, records, courses)
    if any(record.aggregated for record in records):
        participation = _participation(clients, records)
        report = (
            auditor.report(weak_budget_seconds=_WEAK_SECONDS)
            if auditor
            else audit(participation, weak_budget_seconds=_WEAK_SECONDS)
        )
        contents = replace(contents, participation=participation, report=report)
    figures: dict[str, Figure] = {}
    sections: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, row in FIGURES.items():
        if (drawn := row.draw(contents)) is not None:
            figures[name] = drawn.figure
            sections[row.section].append((name, drawn.caption))
    failed = failures(records)
    return render(
        "coterie.runs.report",
        "run.html.j2",
        figures,
        summary=summary,
        level=level_of(summary),
        headline=headline_of(summary),
        words=words,
        particulars=[said for about, said in algorithm_of(summary.config).words(summary) if about != "Privacy"],
        measures=_measures(summary),
        sections=sections,
        courses=courses,
        folder=folder,
        continuing=how_to_continue(summary.config, folder),
        settings=to_toml(summary.config),
        failures=failed[:_FAILURES],
        more_failures=max(0, len(failed) - _FAILURES),
    )


def _participation(clients: Sequence[str], records: Sequence[RoundRecord]) -> Participation:
    number = {name: position for position, name in enumerate(clients)}
    members = tuple(tuple(sorted(number[name] for name in record.aggregated)) for record in records)
    return Participation(tuple(clients), tuple(record.round for record in records), members)


def _measures(summary: Summary) -> list[Measure]:
    share = summary.protect_seconds / summary.seconds if summary.seconds else 0.0
    found: list[Measure] = []
    yardstick, leading = summary.yardstick, summary.leading_score
    if leading is not None and summary.score is not None and summary.best_score is not None:
        worst = summary.extras.get("worst")
        note = f"at best {yardstick.written(summary.best_score)}"
        if worst is not None:
            note = f"of clients' own models; worst {yardstick.written(worst)}"
        if summary.owners_score is not None and summary.client_scores:
            client, lowest = summary.client_scores.ranked(yardstick)[0]
            note = f"of clients' own models on their owners' data; worst {yardstick.written(lowest)} ({client})"
            if summary.client_scores.basis is Basis.PROPORTIONS:
                note += f"; on everybody's {yardstick.written(summary.score)}"
        note += f"; {summary.error:,.4g} {yardstick.unit} off on average" if summary.error is not None else ""
        found.append(Measure(yardstick.name.capitalize(), yardstick.written(leading), note))
    if not algorithm_of(summary.config).aggregates:
        return [*found, Measure("Time", duration(summary.seconds), f"for {summary.rounds:,} rounds")]
    exposed = f"{summary.exposed:,} of {summary.clients:,} clients exposed" if summary.exposed else "nobody exposed"
    privacy = f"{summary.promised:,}" if summary.promised > 1 else "–"
    return [
        *found,
        Measure("Strong T", privacy, f"{summary.promise.describe(summary.strong_privacy)}; {exposed}"),
        Measure("Cohort C", f"{summary.cardinality:.1f}", f"of {summary.config.cohort.size} in a round, on average"),
        Measure("Fairness gap F", f"{summary.fairness_gap:.1%}", "of the rounds"),
        Measure("Protection", f"{share:.0%}", f"of the time, and {size(summary.upload_bytes)} up for each client"),
    ]
