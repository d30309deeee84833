"""Files that are not participation logs, and what the user should do instead."""

import re
from collections.abc import Sequence

from coterie.auditing.logs.columns import SAY_COLUMNS
from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

INSTEAD = (
    'Write one line of JSON for each round when its sum is computed, {"round": 7, "clients": ["a", "b"]}, with the '
    "clients in the sum"
)

_INSTEAD_NVFLARE = f"{INSTEAD[0].lower()}{INSTEAD[1:]}"

_PACKED = {
    b"SQLite format 3\0": "a database: a ledger is opened by its path",
    b"BZh": "packed with bzip2: unpack it first",
    b"\xfd7zXZ\0": "packed with xz: unpack it first",
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it first",
    b"%PDF": "a PDF document",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old kind: save it as CSV",
    b"\x80\x04": "a Python pickle, which is never opened here since it can run programs: write it as CSV or JSON",
}
_FLOWER = re.compile(
    r"\b(configure|aggregate)_(fit|train|evaluate): (strategy )?(sampled|received)|\bfit_round \d+\b", re.IGNORECASE
)
_NVFLARE_AUDIT = re.compile(r"\[E:[0-9a-f]{8}-[0-9a-f-]{27}\](\[R:[^\]]*\])?\[T:\d{4}-")
_NVFLARE = re.compile(r"\[identity=[^,\]]*, run=")
_LINE = 200  # characters of a line that are considered; a row of a matrix has thousands
_PROGRAM = re.compile(
    r"\W*(\d{4}-\d\d-\d\d|\d\d?:\d\d:\d\d\b|(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b)", re.IGNORECASE
)


def refuse_binary(content: bytes) -> None:
    """Raise :class:`InputError` for a file that is neither text nor in a supported binary format."""
    for start, kind in _PACKED.items():
        if content.startswith(start):
            raise InputError(f"this is {kind}")
    if b"\0" in content[:1000]:
        raise InputError(
            "this is not text, or it is UTF-16 without a byte order mark: use ",
            Remedy("encoding", "utf-16-le"),
            " for that",
        )


def refuse_flower(lines: Sequence[str]) -> None:
    """Raise :class:`InputError` if these are lines of a Flower server."""
    for line in lines:
        if _FLOWER.search(line[:_LINE]):
            raise InputError(
                "this is the log of a Flower server. It counts the clients of each round and names none, as in "
                f"“{printable(line.strip(), 70)}”, so exposed clients cannot be found in it. {INSTEAD}: in your "
                "strategy's aggregate_fit these are [proxy.cid for proxy, _ in results]; in aggregate_train, "
                "[reply.metadata.src_node_id for reply in replies if not reply.has_error()]"
            )


def refuse_nvflare(lines: Sequence[str]) -> None:
    """Raise :class:`InputError` if these are lines of NVFlare that do not name the clients that were aggregated."""
    where = (
        "A job with the workflow ScatterAndGather says it in the server's log.txt (“Contribution from site-1 ACCEPTED "
        "by the aggregator at round 0”)"
    )
    if any(_NVFLARE_AUDIT.match(line[:_LINE]) for line in lines):
        raise InputError(
            "this is the audit log of NVFlare. It says which client returned a result, but neither in which round nor "
            "whether the result was aggregated: each client's task has an identifier of its own, and results may be "
            f"rejected. {where}. For other jobs: {_INSTEAD_NVFLARE}"
        )
    if any(_NVFLARE.search(line[:_LINE]) for line in lines):
        raise InputError(
            "this is a log of NVFlare that does not say whose results were aggregated; the workflow FedAvg, for "
            f"instance, counts them only. {where}. For other jobs: {_INSTEAD_NVFLARE}"
        )


def refuse_program_output(lines: Sequence[str]) -> None:
    """Raise :class:`InputError` if most of these lines look like the output of a program."""
    if 2 * sum(bool(_PROGRAM.match(line)) for line in lines) > len(lines):
        raise InputError(
            f"the lines begin with times or levels, as in “{printable(lines[0].strip(), 70)}”. If this is the output "
            f"of a program, it is not a participation log. {INSTEAD}. If it is a table, ",
            *SAY_COLUMNS,
        )
