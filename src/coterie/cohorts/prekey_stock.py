"""The server's stock of prekeys from clients, stored beside the ledger.

The client's list is authoritative. Every offer and every contribution contains all prekeys that the client has not
used, and replaces its stock. A prekey whose contribution arrived is never available again; if a client offers it once
more, its disk was restored from a backup or cloned. A prekey of an invitation without a contribution may be tried
again: the client refuses it if it was used.
"""

import os
from collections.abc import Collection, Mapping

from coterie.cohorts.database_file import DatabaseFile

_TABLES = {
    "stock": "(client TEXT, key BLOB, body BLOB NOT NULL, taken INTEGER NOT NULL, used INTEGER NOT NULL,"
    " PRIMARY KEY (client, key))"
}


class PrekeyStock(DatabaseFile):
    """Public prekeys by client, as opaque bytes; in a file, or only in memory under the name ``:memory:``."""

    def __init__(self, path: str | os.PathLike[str] = ":memory:", *, durable: bool = True) -> None:
        super().__init__(path, _TABLES, "clients' prekeys", durable=durable)
        with self.writing() as connection:
            connection.execute("CREATE INDEX IF NOT EXISTS stock_keys ON stock (key)")  # used prekeys are never deleted

    def used(self, client: str) -> frozenset[bytes]:
        """Return the keys whose contributions arrived."""
        with self.reading() as connection:
            rows = connection.execute("SELECT key FROM stock WHERE client = ? AND used", (client,))
            return frozenset(bytes(key) for (key,) in rows)

    def replace(self, stocks: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """Replace the stocks of some clients, bodies by key. Used prekeys stay used, and taken ones stay taken."""
        with self.writing() as connection:
            for client, prekeys in stocks.items():
                found = connection.execute("SELECT key FROM stock WHERE client = ? AND NOT used", (client,)).fetchall()
                gone = [(client, key) for (key,) in found if bytes(key) not in prekeys]
                connection.executemany("DELETE FROM stock WHERE client = ? AND key = ?", gone)
                rows = [(client, key, body) for key, body in prekeys.items()]
                connection.executemany("INSERT OR IGNORE INTO stock VALUES (?, ?, ?, 0, 0)", rows)

    def unused(self) -> list[tuple[str, bytes, bytes]]:
        """Return client, key and body of all unused prekeys."""
        with self.reading() as connection:
            rows = connection.execute("SELECT client, key, body FROM stock WHERE NOT used")
            return [(client, bytes(key), bytes(body)) for client, key, body in rows]

    def unused_keys(self, clients: Collection[str]) -> dict[str, frozenset[bytes]]:
        """Return the unused keys of some clients."""
        query = "SELECT key FROM stock WHERE client = ? AND NOT used"
        with self.reading() as connection:
            return {
                client: frozenset(bytes(key) for (key,) in connection.execute(query, (client,))) for client in clients
            }

    def discard(self, keys: Collection[tuple[str, bytes]]) -> None:
        """Delete prekeys, each given by its client and its key."""
        with self.writing() as connection:
            connection.executemany("DELETE FROM stock WHERE client = ? AND key = ?", list(keys))

    def mark_used(self, keys: Mapping[str, bytes]) -> None:
        """Record that contributions made with these keys, one for each client, have arrived."""
        with self.writing() as connection:
            # A client may have replaced its stock since its invitation; the key must count as used nevertheless.
            connection.executemany(
                "INSERT INTO stock VALUES (?, ?, x'', 0, 1)"
                " ON CONFLICT (client, key) DO UPDATE SET used = 1, body = x''",
                list(keys.items()),
            )

    def held_by_others(self, client: str, keys: Collection[bytes]) -> bool:
        """Return whether another client offered one of these keys."""
        query = "SELECT 1 FROM stock WHERE key = ? AND client <> ? LIMIT 1"
        with self.reading() as connection:
            return any(connection.execute(query, (key, client)).fetchone() for key in keys)

    def counts(self) -> dict[str, int]:
        """Return the number of unused prekeys of each client."""
        with self.reading() as connection:
            return dict(connection.execute("SELECT client, count(*) FROM stock WHERE NOT used GROUP BY client"))

    def fresh(self, client: str) -> int:
        """Return how many prekeys of a client were in no invitation yet."""
        with self.reading() as connection:
            (number,) = connection.execute(
                "SELECT count(*) FROM stock WHERE client = ? AND NOT used AND NOT taken", (client,)
            ).fetchone()
        return int(number)

    def take(self, clients: Collection[str]) -> dict[str, bytes]:
        """Return one prekey of each client for an invitation, preferably a fresh one; clients without are left out."""
        taken = {}
        with self.writing() as connection:
            for client in clients:
                found = connection.execute(
                    "SELECT key, body FROM stock WHERE client = ? AND NOT used ORDER BY taken, rowid LIMIT 1", (client,)
                ).fetchone()
                if found is None:
                    continue
                connection.execute(
                    "UPDATE stock SET taken = taken + 1 WHERE client = ? AND key = ?", (client, found[0])
                )
                taken[client] = bytes(found[1])
        return taken
