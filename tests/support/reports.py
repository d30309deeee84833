"""Check that the report of an experiment can be written again from its results."""

import pytest

from coterie.errors import ConfigError
from coterie.reports.findings import Findings
from coterie.reproduce.runner import REPORT, Run


def checked_report(run: Run) -> tuple[Findings, str]:
    """Do all jobs, write the report and return it.

    Check that the results give the same report again, and that results without the numbers are refused.
    """
    run.work()
    findings = run.write_report()
    text = (run.folder / REPORT).read_text()
    run.rewrite_report()
    assert (run.folder / REPORT).read_text() == text
    with pytest.raises(ConfigError, match="do not hold"):
        run.experiment.report_again({})
    return findings, text
