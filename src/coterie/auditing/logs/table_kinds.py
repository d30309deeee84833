"""Kinds of tables, and their detection if the user does not name one.

``pairs`` and ``lists`` are read by :mod:`coterie.auditing.logs.pairs`, a ``matrix`` by
:mod:`coterie.auditing.logs.matrices`. Ambiguous tables are refused.
"""

from itertools import islice
from typing import Literal

from coterie.auditing.logs.collector import Collector
from coterie.auditing.logs.columns import (
    DECISIVE,
    ONE_CLIENT,
    ROUND,
    Meaning,
    find_column,
    list_columns,
    meaning_of,
    remedy_for,
)
from coterie.auditing.logs.foreign_files import refuse_flower, refuse_nvflare, refuse_program_output
from coterie.auditing.logs.matrices import collect_matrix
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.pairs import PairLog
from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.tables import Table, bit_of
from coterie.cohorts.log_size import check_memory
from coterie.cohorts.participation import Participation
from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_LABEL_BYTES = 150  # memory of a label
_SERVER_SAMPLE = 1000  # lines that are searched for those of Flower and NVFlare; other programs may print before them


def is_table(log: RawLog) -> bool:
    """Return true for any text, but refuse the output of programs."""
    text = log.text
    if not log.options.choose:
        sample = [line for _, line in islice(text.lines, _SERVER_SAMPLE)]
        refuse_flower(sample)
        refuse_nvflare(sample)
        if not text.table.named:
            refuse_program_output(text.sample)
    return True


def read_csv(log: RawLog) -> Participation:
    """Read a table after detecting its kind."""
    return collect_table(log.text.table, log.options, log.text.collector())


def collect_table(table: Table, options: LogOptions, found: Collector) -> Participation:
    """Collect the rounds of a table after detecting its kind."""
    match _guess_kind(table, options, found):
        case "matrix":
            return collect_matrix(table, options, found)
        case "lists":
            return PairLog(table, options, found).read_lists(insisted=False)
        case _:
            return PairLog(table, options, found).read_pairs(insisted=False)


def _guess_kind(table: Table, options: LogOptions, found: Collector) -> Literal["pairs", "lists", "matrix"]:
    header, labelled = table.header, table.labelled
    if options.choose:
        client = find_column(header, options.client_column, (*ONE_CLIENT, Meaning.CLIENTS), "clients")
        return "lists" if client >= 0 and meaning_of(header[client]) is Meaning.CLIENTS else "pairs"
    rounds, clients = bool(table.meanings & {*ROUND}), bool(table.meanings & {*ONE_CLIENT})
    if rounds and not clients and Meaning.CLIENTS in table.meanings:
        return "lists"
    binary = [None not in map(bit_of, cells[labelled:]) for cells in table.sample]
    if not binary[0] and len(binary) > 1:
        del binary[0]  # a header
    both = rounds and clients
    if 2 * sum(binary) <= len(binary) or (both and (len(header) == 2 or meaning_of(header[0]) not in ROUND)):
        return "pairs"
    if both:
        column = printable(next(name for name in header if meaning_of(name) in ONE_CLIENT))
        if _labels_repeat(table, found.limit):  # as in pairs, although all else is 0 or 1 as in a matrix
            raise InputError(
                f"not clear whether column {column} holds clients or is one: use ",
                Remedy("format", "pairs"),
                " or ",
                Remedy("format", "matrix"),
            )
    decisive = [name for name in header if meaning_of(name) in DECISIVE]
    if decisive or (table.named and not labelled):
        raise InputError(
            f"all cells are 0 or 1, but {list_columns(header)}: if these are clients, use ",
            Remedy("format", "matrix"),
            "; else use ",
            remedy_for("rounds"),
            " and ",
            remedy_for("clients"),
        )
    if len(header) == 2 and not labelled:
        found.note("two columns of 0 and 1 were read as a matrix of two clients, not as pairs")
    return "matrix"


def _labels_repeat(table: Table, limit: int) -> bool:
    """Return whether two rows have the same label."""
    labels: set[str] = set()
    for _, line in table.lines(1):
        label = table.cut_loosely(line)[0]
        if label in labels:
            return True
        labels.add(label)
        check_memory(_LABEL_BYTES * len(labels), limit)
    return False
