"""Tables of cells, and which kind of participation log one is where the user does not say.

``pairs`` and ``lists`` are read by :mod:`coterie.auditing.pair_logs`, a ``matrix`` by
:mod:`coterie.auditing.matrix_logs`. What could be read in more than one way is refused.
"""

from typing import Literal

from coterie.auditing.collector import Collector
from coterie.auditing.columns import (
    DECISIVE,
    ONE_CLIENT,
    ROUND,
    LogOptions,
    Meaning,
    find_column,
    list_columns,
    meaning_of,
    option_for,
)
from coterie.auditing.matrix_logs import read_matrix
from coterie.auditing.pair_logs import PairLog
from coterie.auditing.tables import Table, bit_of
from coterie.cohorts.log_size import check_memory
from coterie.cohorts.participation import Participation
from coterie.errors import InputError
from coterie.reports.words import printable

_LABEL_BYTES = 150  # that a label takes in memory

TableFormat = Literal["pairs", "lists", "matrix"]


def read_table(table: Table, wanted: TableFormat | None, options: LogOptions, found: Collector) -> Participation:
    """Collect the rounds of a table, in the format that is wanted or the one it looks like."""
    match wanted or _guess_format(table, options, found):
        case "matrix":
            return read_matrix(table, options, found)
        case "lists":
            return PairLog(table, options, found).read_lists(wanted is not None)
        case _:
            return PairLog(table, options, found).read_pairs(wanted is not None)


def _guess_format(table: Table, options: LogOptions, found: Collector) -> TableFormat:
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
        if _labels_repeat(table, found.limit):  # as in pairs, but all else is 0 or 1 as in a matrix
            raise InputError(
                f"not clear whether column {column} holds clients or is one: say --format pairs or --format matrix"
            )
    decisive = [name for name in header if meaning_of(name) in DECISIVE]
    if decisive or (table.named and not labelled):
        raise InputError(
            f"all cells are 0 or 1, but {list_columns(header)}: if these are clients, say --format matrix; else "
            f"say {option_for('rounds')} and {option_for('clients')}"
        )
    if len(header) == 2 and not labelled:
        found.note("two columns of 0 and 1 were read as a matrix of two clients, not as pairs")
    return "matrix"


def _labels_repeat(table: Table, limit: int) -> bool:
    """Tell whether two rows have the same label."""
    labels: set[str] = set()
    for _, line in table.lines(1):
        label = table.cut_loosely(line)[0]
        if label in labels:
            return True
        labels.add(label)
        check_memory(_LABEL_BYTES * len(labels), limit)
    return False
