"""The server's log of NVFlare, for jobs that log which clients' results were aggregated.

The workflow ScatterAndGather, and those derived from it, write a line for each result:

    ... [identity=server, run=8c1a..., wf=scatter_and_gather, ...] - Contribution from site-1 ACCEPTED by the aggregator
    at round 0.

These lines are the participation log. They are in ``log.txt`` and ``log_fl.txt`` of the job, and in ``log.json``. The
aggregator also writes how many updates it adds: if that is more than the log names, a part of the log is missing, for
example after log rotation. Other workflows, such as FedAvg, only count updates, and NVFlare's ``audit.log`` names
neither rounds nor what was aggregated: :mod:`coterie.auditing.logs.foreign_files` refuses both.
"""

import re

from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.row_filter import Fate, RowFilter
from coterie.cohorts.participation import Label, LogReading, Participation
from coterie.errors import InputError

_MARK = b" by the aggregator at round "
_RESULT = re.compile(r"\bContribution from (\S+) (ACCEPTED|REJECTED) by the aggregator at round (\d{1,9})\b")
_ADDED = re.compile(r"\baggregating (\d{1,9}) update\(s\) at round (\d{1,9})\b")
_BEGIN = re.compile(r"\W*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - \w|\{\"asctime\": ")
_RUN = re.compile(r"\brun=([^,\]\s]+)")
_RUN_COLUMN = "run"


def is_nvflare(log: RawLog) -> bool:
    """Return whether the log has such lines, and most of its first lines begin as NVFlare's do.

    A table with these words in a cell is not such a log, and its rows must not be skipped.
    """
    if _MARK not in log.unpacked:
        return False
    sample = log.text.sample
    begins = sum(bool(_BEGIN.match(line)) for line in sample)
    return 2 * begins > len(sample) and any(_RESULT.search(line) for _, line in log.text.lines)


def read_nvflare(log: RawLog) -> Participation:
    """Read the lines about results; all others are skipped."""
    if log.options.round_column or log.options.client_column:
        raise InputError("the log of an NVFlare server has no columns to choose from")
    found, rows = log.text.collector(), RowFilter(log.options.where)
    rows.watch([_RUN_COLUMN])
    named: dict[Label, set[str]] = {}
    passed_over = 0

    def use(line: str) -> None:
        nonlocal passed_over
        result, added = _RESULT.search(line), _ADDED.search(line)
        if not result and not added:
            passed_over += 1
            return
        run = _RUN.search(line)
        if rows.judge({_RUN_COLUMN: run[1] if run else ""}) is Fate.NOT_ASKED_FOR:
            return
        if result:
            client, outcome, number = result.groups()
            label = found.label(str(int(number)))
            found.open_round(label)
            if outcome == "ACCEPTED":
                found.add(label, client)
                named.setdefault(label, set()).add(client)
            else:
                found.lose(label, client)
        elif added:
            label, expected = found.label(str(int(added[2]))), int(added[1])
            if expected > len(named.get(label, ())):
                raise InputError(
                    f"round {label} adds {expected} updates, and the log names {len(named.get(label, ()))} of their "
                    "clients: a part of the log is missing"
                )

    found.each(log.text.lines, use)
    if passed_over:
        found.note(f"lines about other things that were passed over: {passed_over:,}")
    return found.finish(LogReading("nvflare", "“at round”", "“Contribution from”"), rows)
