"""Matrices of 0 and 1: a row for each round and a column for each client, or transposed.

A header contains the clients' names. If its first cell is empty or names the rounds, the first column contains labels.
Rows are clients, and columns rounds, only if a header or the labels show it.
"""

import re
from collections import Counter

from coterie.auditing.logs.collector import Collector
from coterie.auditing.logs.columns import ONE_CLIENT, meaning_of
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.tables import Table, bit_of
from coterie.cohorts.participation import LogReading, Participation
from coterie.errors import InputError

_A_ROUND = re.compile(r"(r|rnd|round|t|epoch|iteration|step)[\s_-]?\d+", re.IGNORECASE)
_A_CLIENT = re.compile(r"(c|cid|client|user|node|device|worker|party|site|silo)[\s_-]?\d+", re.IGNORECASE)


def read_matrix(log: RawLog) -> Participation:
    """Read a text in the format ``matrix``."""
    return collect_matrix(log.text.table, log.options, log.text.collector())


def collect_matrix(table: Table, options: LogOptions, found: Collector) -> Participation:
    """Collect the rounds of a matrix."""
    if options.choose:
        raise InputError("a matrix has no column of rounds or of clients to choose, and none to choose rows by")
    header, labelled = table.header, table.labelled
    # A damaged row of bits repeats values, so it is not mistaken for a header, whose names are unique.
    named = labelled or (None in map(bit_of, header) and len(set(header)) == len(header))
    if named:
        found.note("the first line was read as the names of the columns")
    lengths = Counter(map(len, table.sample))
    width = len(header) if named else lengths.most_common(1)[0][0]
    names = header[labelled:] if named else list(map(str, range(1, width + 1)))
    if not all(names) or len(set(names)) < len(names):
        raise InputError("the header of the matrix must name every client, each differently")
    transposed = named and _is_transposed(table)
    labels = [found.label(name) for name in names] if transposed else []
    for label in labels:
        found.open_round(label)
    for name in () if transposed else names:
        found.enrol(name)
    position = 0

    def use(line: object) -> None:
        nonlocal position
        position += 1  # also for an unreadable row, so that later rows keep their numbers
        cells = table.cut(line)
        if len(cells) != width:
            raise InputError(f"{len(cells)} columns instead of {width}")
        bits = list(map(bit_of, cells[labelled:]))
        if None in bits:
            raise InputError(f"neither 0 nor 1: {cells[labelled:][bits.index(None)]}")
        if not transposed:
            label = found.label(cells[0]) if labelled else position
            found.add_all(label, [name for name, bit in zip(names, bits, strict=True) if bit])
            return
        name = cells[0] if labelled else str(position)
        if not name or found.knows(name):
            raise InputError("the client is missing, or occurred before")
        found.enrol(name)
        for label, bit in zip(labels, bits, strict=True):
            if bit:
                found.add(label, name)

    found.each(table.lines(int(named)), use)
    rounds, clients = ("columns", "rows") if transposed else ("rows", "columns")
    return found.finish(LogReading("matrix", rounds, clients))


def _is_transposed(table: Table) -> bool:
    """Return whether the rows of a matrix with a header are clients, and its columns rounds."""
    first = table.header[0]
    if table.labelled and first:
        return meaning_of(first) in ONE_CLIENT
    if all(map(_A_ROUND.fullmatch, table.header[table.labelled :])):
        return True
    rows = [cells[0] for cells in table.sample[1:]]
    return table.labelled and bool(rows) and all(map(_A_CLIENT.fullmatch, rows))
