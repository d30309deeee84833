"""The work of ``coterie audit`` after its log is read: examine one run or several, and write what was found."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from coterie.cli.audit_input import complain
from coterie.cli.common import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from coterie.auditing.answers import Answers, Questions
    from coterie.auditing.auditor import AuditReport
    from coterie.auditing.logs import Participation
    from coterie.auditing.logs.runs import Run
    from coterie.auditing.verdict import Requirement

_TELL_SECONDS = 10.0  # between two lines on how far it is, where there is no terminal
_LISTED = 100  # unreadable lines in the JSON


class Audited(NamedTuple):
    """A log, its audit, and the exit status that follows."""

    participation: "Participation"
    report: "AuditReport"
    requirement: "Requirement | None"
    answers: "Answers"
    status: ExitStatus


class Examination(NamedTuple):
    """What is asked of a log, and what must hold."""

    questions: "Questions"
    require: int | None
    weak: bool
    collusion: int
    weak_seconds: float
    report_only: bool
    errors: "Console"

    def examine(self, participation: "Participation") -> Audited:
        """Audit a log and answer the questions about it."""
        from coterie.auditing.answers import Answers
        from coterie.auditing.verdict import Requirement

        recipes = max(1, len(participation.recipes))
        requirement = None if self.require is None else Requirement(self.require, self.weak, recipes)
        report = self._audit(participation)
        answers = self.questions.answer(participation, report) if report.complete else Answers()
        status = self._status(participation, report, requirement, answers)
        return Audited(participation, report, requirement, answers, status)

    def _status(
        self,
        participation: "Participation",
        report: "AuditReport",
        requirement: "Requirement | None",
        answers: "Answers",
    ) -> ExitStatus:
        if not report.complete:
            return ExitStatus.INTERRUPTED
        if participation.problems:  # a missing line can make a verdict worse as well as better
            return ExitStatus.BAD_INPUT
        strong = requirement.privacy if requirement and not requirement.weak else 1
        held = not report.exposed and (requirement is None or requirement.holds(report)) and answers.holds(strong)
        return ExitStatus.FINE if held or self.report_only else ExitStatus.NOT_MET

    def _audit(self, participation: "Participation") -> "AuditReport":
        from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

        from coterie.auditing.auditor import audit as audit_log

        errors, weak_seconds = self.errors, self.weak_seconds
        columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
        with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
            tasks: dict[str, TaskID] = {}
            began = told = time.monotonic()

            def show_progress(step: str, part: float) -> None:
                nonlocal told
                if step not in tasks:
                    tasks[step] = bar.add_task(step, total=None if step == "Weak T" else 1.0)
                bar.update(tasks[step], completed=part)
                now = time.monotonic()
                if not errors.is_terminal and now - told >= _TELL_SECONDS:
                    told = now
                    errors.print(f"{step}: {part:.0%} after {now - began:.0f} s", markup=False)
                if step == "Weak T" and not errors.is_terminal and weak_seconds >= _TELL_SECONDS:
                    errors.print(f"Weak T takes at most {weak_seconds:.0f} s more", markup=False)

            return audit_log(
                participation, weak_budget_seconds=weak_seconds, collusion=self.collusion, progress=show_progress
            )


class Outputs(NamedTuple):
    """Where the findings go, and what belongs to them."""

    source: str
    options: dict[str, Any]
    as_json: bool
    witnesses: int | None
    exposed: Path | None
    html: Path | None
    summary: Path | None
    errors: "Console"

    def write(self, audited: Audited, promise: str, promised: Mapping[str, Any]) -> None:
        """Write the findings about one log."""
        participation, report, requirement, answers, _ = audited
        if self.as_json:
            found = self._values(audited)
            if promise:
                found["promise"] = {"words": promise, **promised}
            typer.echo(json.dumps(found, indent=2))
        else:
            from coterie.cli.audit_text import show

            show(report, participation, requirement, self.witnesses, promise, answers.words())
        self._write_exposed({(): audited})
        if self.html:
            from coterie.auditing.page import audit_page

            page = audit_page(
                report,
                participation,
                self.source,
                requirement=requirement,
                witnesses=self.witnesses,
                options=self.options,
                promise=promise,
                answers=answers.words(),
            )
            self._write_page(self.html, page, "page")
        if self.summary:
            from coterie.auditing.summary import summary_page

            page = summary_page(report, participation, self.source, requirement, answers, self.options)
            self._write_page(self.summary, page, "summary")

    def write_runs(self, runs: Mapping["Run", Audited]) -> ExitStatus:
        """Write the findings about every run of a log. Return the worst exit status."""
        for run, audited in runs.items():
            if audited.participation.problems:
                self.errors.print(f"{run_name(run)}:", markup=False)
            complain(audited.participation, self.errors, notes=False)
        if self.as_json:
            found = [
                {"run": dict(run), **self._values(audited), "status": audited.status} for run, audited in runs.items()
            ]
            typer.echo(json.dumps({"runs": found}, indent=2))
        else:
            from coterie.cli.audit_text import show_runs

            show_runs([(run_name(run), audited.report, audited.answers.words()) for run, audited in runs.items()])
        self._write_exposed(runs)
        return max(audited.status for audited in runs.values())

    def _values(self, audited: Audited) -> dict[str, Any]:
        from coterie.auditing.preview import gather_evidence, preview_values
        from coterie.auditing.verdict import affordable, judge

        # Coefficients over thousands of rounds outgrow Python's limit, which guards the parsing of strangers' numbers.
        sys.set_int_max_str_digits(0)
        participation, report, requirement, answers, _ = audited
        verdict, problems = judge(report), participation.problems
        found: dict[str, Any] = {"verdict": verdict.headline, "level": verdict.level}
        found |= report.as_dict(affordable(report.exposed, self.witnesses))
        found["series"] = {"round": report.rounds, **asdict(report.series)}
        listed = [asdict(problem) for problem in problems[:_LISTED]]
        found["unreadable"] = {"lines": participation.unread, "first": listed}
        found["notes"] = participation.notes
        found["read"] = preview_values(participation)
        if requirement:
            found["required"] = {**asdict(requirement), "holds": requirement.holds(report)}
        found |= answers.as_dict()
        found["evidence"] = asdict(gather_evidence(participation, self.source, self.options))
        return found

    def _write_exposed(self, runs: Mapping["Run", Audited]) -> None:
        """Write all exposed clients as CSV, with a column for the run if there are several."""
        if not self.exposed:
            return
        import csv
        import io

        from coterie.files import write_output

        table = io.StringIO()
        rows = csv.writer(table, lineterminator="\n")
        several = list(runs) != [()]
        rows.writerow([*(["run"] if several else []), "client", "since_round"])
        for run, audited in runs.items():
            name = [run_name(run)] if several else []
            rows.writerows([*name, found.client, found.round] for found in audited.report.exposed)
        write_output(self.exposed, table.getvalue().encode())
        self.errors.print(f"The exposed clients are in {self.exposed}", markup=False)

    def _write_page(self, path: Path, page: str, kind: str) -> None:
        from coterie.files import write_output

        write_output(path, page.encode())
        self.errors.print(f"The {kind} is in {path}", markup=False)


def run_name(run: "Run") -> str:
    """Return how a run is called: "experiment=x, seed=1"."""
    from coterie.reports.words import printable

    return ", ".join(f"{printable(column)}={printable(value)}" for column, value in run) or "the only run"
