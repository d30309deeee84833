"""The page on a run, ``report.html``: quality, privacy, fairness and costs."""

from collections.abc import Sequence

from coterie.auditing import figures as audit_figures
from coterie.auditing.auditor import Auditor, audit
from coterie.auditing.findings import AuditReport
from coterie.auditing.logs import Participation
from coterie.auditing.verdict import Measure, Requirement
from coterie.reports.charts import Figure
from coterie.reports.html import render
from coterie.reports.words import Level, duration, size
from coterie.runs.algorithms import algorithm_of
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.report import figures as run_figures
from coterie.runs.report.forecasts import Course, shown
from coterie.runs.report.words import in_words
from coterie.runs.settings.toml import to_toml

_WEAK_SECONDS = 5.0  # for weak T: it is no more than a note here
_FAILURES = 100


def run_page(
    summary: Summary,
    clients: Sequence[str],
    records: Sequence[RoundRecord],
    folder: str,
    courses: Sequence[Course] = (),
    auditor: Auditor | None = None,
) -> str:
    """Return one self-contained HTML page on a run.

    ``courses`` are its forecasts, if it learnt to forecast. ``auditor`` has audited its rounds; without one, they are
    audited here.
    """
    words = dict(in_words(summary))
    figures: dict[str, Figure] = {}
    captions: dict[str, str] = {}
    report: AuditReport | None = None
    if records:
        figures["learning"] = run_figures.learning(records, summary.yardstick, algorithm_of(summary.config).curves)
        figures["times"] = run_figures.times(records)
    if courses:
        figures["forecasts"] = run_figures.forecasts(shown(courses))
    if any(record.selected for record in records):
        figures["cohorts"] = run_figures.cohorts(records)
        figures["traffic"] = run_figures.traffic(records)
    if any(record.aggregated for record in records):
        participation = _participation(clients, records)
        report = (
            auditor.report(weak_budget_seconds=_WEAK_SECONDS)
            if auditor
            else audit(participation, weak_budget_seconds=_WEAK_SECONDS)
        )
        rounds = audit_figures.RoundAxis(participation.rounds)
        if summary.config.aggregation.kind == "secure":
            promise = Requirement(summary.promise.circle)
            figures["privacy"] = audit_figures.privacy(report, rounds, promise)
        figures["participation"], captions["participation"] = audit_figures.participation_map(
            participation, report.exposed, rounds
        )
        figures["frequency"], captions["frequency"] = audit_figures.frequency(report)
    if summary.epsilon is not None and records:
        figures["spending"] = run_figures.spending(records, summary.config.noise.delta)
    failed = run_figures.failures(records)
    return render(
        "coterie.runs.report",
        "run.html.j2",
        figures,
        summary=summary,
        level=_level(summary),
        headline=_headline(summary),
        words=words,
        particulars=[said for about, said in algorithm_of(summary.config).words(summary) if about != "Privacy"],
        measures=_measures(summary),
        captions=captions,
        courses=courses,
        drawn=set(figures),
        folder=folder,
        settings=to_toml(summary.config),
        failures=failed[:_FAILURES],
        more_failures=max(0, len(failed) - _FAILURES),
    )


def _participation(clients: Sequence[str], records: Sequence[RoundRecord]) -> Participation:
    number = {name: position for position, name in enumerate(clients)}
    members = tuple(tuple(sorted(number[name] for name in record.aggregated)) for record in records)
    return Participation(tuple(clients), tuple(record.round for record in records), members)


def _level(summary: Summary) -> Level:
    if not algorithm_of(summary.config).aggregates or summary.strong_privacy is None:
        return Level.NOTHING
    if summary.exposed:
        return Level.DANGER
    return Level.SAFE if summary.safe else Level.CAUTION


def _headline(summary: Summary) -> str:
    learnt = f"{summary.rounds:,} rounds"
    if summary.score is not None:
        told = summary.yardstick.told(summary.score)
        learnt = f"{told[0].upper()}{told[1:]} after {learnt}"
    if _level(summary) is Level.DANGER:
        return f"{learnt}, and {summary.exposed:,} clients exposed"
    if _level(summary) is Level.SAFE:
        helped = f", T - c = {summary.promise.honest}" if summary.promise.colluders else ""
        return f"{learnt}, and no client can be singled out (T = {summary.promised}{helped})"
    return learnt


def _measures(summary: Summary) -> list[Measure]:
    share = summary.protect_seconds / summary.seconds if summary.seconds else 0.0
    found: list[Measure] = []
    yardstick = summary.yardstick
    if summary.score is not None and summary.best_score is not None:
        worst = summary.extras.get("worst")
        note = f"at best {yardstick.written(summary.best_score)}"
        note = note if worst is None else f"of clients' own models; worst {yardstick.written(worst)}"
        note += f"; {summary.error:,.4g} {yardstick.unit} off on average" if summary.error is not None else ""
        found.append(Measure(yardstick.name.capitalize(), yardstick.written(summary.score), note))
    if not algorithm_of(summary.config).aggregates:
        return [*found, Measure("Time", duration(summary.seconds), f"for {summary.rounds:,} rounds")]
    exposed = f"{summary.exposed:,} of {summary.clients:,} clients exposed" if summary.exposed else "nobody exposed"
    privacy = f"{summary.promised:,}" if summary.promised > 1 else "–"
    return [
        *found,
        Measure("Strong T", privacy, f"{summary.promise.told(summary.strong_privacy)}; {exposed}"),
        Measure("Cohort C", f"{summary.cardinality:.1f}", f"of {summary.config.cohort.size} in a round, on average"),
        Measure("Fairness gap F", f"{summary.fairness_gap:.1%}", "of the rounds"),
        Measure("Protection", f"{share:.0%}", f"of the time, and {size(summary.upload_bytes)} up for each client"),
    ]
