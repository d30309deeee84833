"""The work of ``coterie audit`` after its log is read: examine one run or several, and write what was found."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from coterie.auditing.settings import AuditSettings
from coterie.cli.audit_input import complain
from coterie.cli.common import ExitStatus, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from coterie.auditing.answers import Answers, Questions
    from coterie.auditing.auditor import AuditReport
    from coterie.auditing.findings import Exposure
    from coterie.auditing.logs import Participation
    from coterie.auditing.logs.runs import Run
    from coterie.auditing.verdict import Requirement

_CHEAP_SECONDS, _WEAK_SECONDS = 2.0, 60.0  # time for weak T: if it is not required, and if it is (--weak)
_TELL_SECONDS = 10.0  # seconds between two lines of progress, without a terminal
_LISTED = 100  # unreadable lines in the JSON
_LONG = 1_500  # rounds and clients from which a witness takes seconds
_JSON_DIGITS, _TEXT_DIGITS = 1_250_000, 100_000  # of witnesses computed by default; text only counts long ones


class AuditResult(NamedTuple):
    """A log, its audit, and the exit status that follows."""

    participation: "Participation"
    report: "AuditReport"
    requirement: "Requirement | None"
    answers: "Answers"
    status: ExitStatus


class Meter:
    """Shows the progress of each step: as bars on a terminal, otherwise as a line now and then."""

    def __init__(self, errors: "Console", weak_seconds: float) -> None:
        from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)
        self._errors, self._weak_seconds = errors, weak_seconds
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._first = self._told = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, step: str, part: float) -> None:
        """Show that this fraction of a step is done."""
        now = time.monotonic()
        if step not in self._tasks:
            self._tasks[step] = self._bar.add_task(step, total=None if step == "Weak T" else 1.0)
            self._began[step] = now
        self._bar.update(self._tasks[step], completed=part)
        if self._errors.is_terminal:
            return
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            left = f", about {(now - self._began[step]) * (1 - part) / part:.0f} s left" if part else ""
            self._errors.print(f"{step}: {part:.0%} after {now - self._first:.0f} s{left}", markup=False)
        if step == "Weak T" and self._weak_seconds >= _TELL_SECONDS:
            self._errors.print(f"Weak T takes at most {self._weak_seconds:.0f} s more", markup=False)


class Examination(NamedTuple):
    """The questions about a log, and the requirement that must hold."""

    settings: AuditSettings
    questions: "Questions"
    errors: "Console"

    @property
    def weak_seconds(self) -> float:
        """The time for weak T."""
        given = self.settings.weak_seconds
        return given if given is not None else _WEAK_SECONDS if self.settings.weak else _CHEAP_SECONDS

    def examine(self, participation: "Participation") -> AuditResult:
        """Audit a log and answer the questions about it."""
        from coterie.auditing.answers import Answers
        from coterie.auditing.auditor import audit
        from coterie.auditing.verdict import Requirement

        self.questions.check(participation)
        require, recipes = self.settings.require, max(1, len(participation.recipes))
        requirement = None if require is None else Requirement(require, self.settings.weak, recipes)
        with Meter(self.errors, self.weak_seconds) as meter:
            report = audit(
                participation,
                weak_budget_seconds=self.weak_seconds,
                collusion=self.settings.collusion,
                progress=meter.show,
            )
        answers = self.questions.answer(participation, report) if report.complete else Answers()
        status = self._status(participation, report, requirement, answers)
        return AuditResult(participation, report, requirement, answers, status)

    def _status(
        self,
        participation: "Participation",
        report: "AuditReport",
        requirement: "Requirement | None",
        answers: "Answers",
    ) -> ExitStatus:
        if not report.complete:
            return ExitStatus.INTERRUPTED
        if participation.problems:  # a missing line can make the verdict better or worse
            return ExitStatus.BAD_INPUT
        strong = requirement.privacy if requirement and not requirement.weak else 1
        held = not report.exposed and (requirement is None or requirement.holds(report)) and answers.holds(strong)
        return ExitStatus.FINE if held or self.settings.report_only else ExitStatus.NOT_MET


class Outputs(NamedTuple):
    """Where the findings go, and what they include."""

    source: str
    options: dict[str, Any]
    as_json: bool
    witnesses: int | None
    exposed: Path | None
    html: Path | None
    summary: Path | None
    errors: "Console"

    def write(self, audited: AuditResult, promise: str, promised: Mapping[str, Any]) -> None:
        """Write the findings about one log."""
        participation, report, requirement, answers, _ = audited
        if self.as_json:
            found = self._values(audited)
            if promise:
                found["promise"] = {"words": promise, **promised}
            print_json(found)
        else:
            from coterie.cli.audit_text import LISTED, show

            listed = report.exposed[: max(self.witnesses or 0, LISTED)]
            written = partial(self._computed, report, listed, _TEXT_DIGITS)
            show(report, participation, requirement, listed, written, promise, answers.words())
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

    def write_runs(self, runs: Mapping["Run", AuditResult]) -> ExitStatus:
        """Write the findings about every run of a log. Return the worst exit status."""
        for run, audited in runs.items():
            if audited.participation.problems:
                self.errors.print(f"{run_name(run)}:", markup=False)
            complain(audited.participation, self.errors, notes=False)
        if self.as_json:
            found = [
                {"run": dict(run), **self._values(audited), "status": audited.status} for run, audited in runs.items()
            ]
            print_json({"runs": found})
        else:
            from coterie.cli.audit_text import show_runs

            show_runs([(run_name(run), audited.report, audited.answers.words()) for run, audited in runs.items()])
        self._write_exposed(runs)
        return max(audited.status for audited in runs.values())

    def _values(self, audited: AuditResult) -> dict[str, Any]:
        from coterie.auditing.preview import gather_evidence, preview_values
        from coterie.auditing.verdict import judge

        # Coefficients over thousands of rounds exceed Python's limit of digits, which is meant for untrusted numbers.
        sys.set_int_max_str_digits(0)
        participation, report, requirement, answers, _ = audited
        verdict, problems = judge(report), participation.problems
        found: dict[str, Any] = {"verdict": verdict.headline, "level": verdict.level}
        found |= report.as_dict(self._computed(report, report.exposed, _JSON_DIGITS))
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

    def _computed(self, report: "AuditReport", exposed: "Sequence[Exposure]", digits: int) -> int:
        """Compute the witnesses to write, and return their number. Ctrl-C leaves out those that are missing."""
        from coterie.auditing.verdict import affordable

        if exposed and min(len(report.rounds), len(report.clients)) >= _LONG:
            self.errors.print("A witness takes some seconds; Ctrl-C continues without it")
        try:
            with Meter(self.errors, 0.0) as meter:
                meter.show("Witnesses", 0.0)
                number = affordable(exposed, self.witnesses, digits)
                for done, exposure in enumerate(exposed[:number]):
                    meter.show("Witnesses", done / number)
                    _ = exposure.witness
        except KeyboardInterrupt:
            number = sum(1 for _ in takewhile(lambda exposure: "witness" in vars(exposure), exposed))
        return number

    def _write_exposed(self, runs: Mapping["Run", AuditResult]) -> None:
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
    """Return the name of a run: "experiment=x, seed=1"."""
    from coterie.reports.words import printable

    return ", ".join(f"{printable(column)}={printable(value)}" for column, value in run) or "the only run"
