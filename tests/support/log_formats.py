"""A made-up log format, which tests add to the table."""

from coterie.auditing.logs import LogFormat, Participation
from coterie.auditing.logs.raw_log import RawLog


def read_attendance(log: RawLog) -> Participation:
    """Read lines such as "3: ann+bob"."""
    rounds = {label: who.split("+") for label, _, who in (line.partition(": ") for line in log.text.sample[1:])}
    clients = tuple(sorted({client for who in rounds.values() for client in who}))
    members = tuple(tuple(clients.index(client) for client in who) for who in rounds.values())
    return Participation(clients, tuple(map(int, rounds)), members)


ATTENDANCE = LogFormat(
    "attendance", "`3: ann+bob` after a line `[attendance]`", read_attendance, lambda log: log.begins(b"[attendance]")
)
ATTENDED = "[attendance]\n3: ann+bob+cyd\n4: ann+bob\n"
