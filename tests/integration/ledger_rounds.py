"""A server process for the ledger tests: it executes commands from standard input, one per line.

``round N``: in a child process, open the ledger, end the rounds that a crash left open, and run a round, but die by
SIGKILL at its N-th point. Points are this program's own steps and all calls of the database driver. Prints the point
and then ``killed``, or ``survived`` if there are fewer points. ``restart N``: the same for ending an open round.

``migrate N``: the same for opening a ledger of format 1 and recording its first entry of format 2, a skipped round.

``claim CIRCLE COUNT``: try to reveal the rounds 0 to COUNT - 1 and print those that were won.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, Pool, create_engine, event

from coterie.cohorts.ledger import Ledger, Outcome
from coterie.errors import LedgerConflict

CIRCLES = [[f"client{circle}{member}" for member in "abc"] for circle in range(4)]
PROMISED = 3
SKIPPED = 99


def die_at(position: int) -> Callable[[str], None]:
    passed = 0

    def point(label: str) -> None:
        nonlocal passed
        if passed == position:
            os.write(1, f"{label}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    return point


def go_on(_label: str) -> None:
    pass


def watch_database(point: Callable[[str], None]) -> None:
    def verb(statement: str) -> str:
        return statement.split(maxsplit=1)[0].lower()

    event.listen(Engine, "before_cursor_execute", lambda _c, _k, statement, *_: point(f"before {verb(statement)}"))
    event.listen(Engine, "after_cursor_execute", lambda _c, _k, statement, *_: point(f"after {verb(statement)}"))
    event.listen(Engine, "commit", lambda _connection: point("before commit"))
    event.listen(Pool, "checkin", lambda _connection, _record: point("connection given back"))


def begin_round(ledger: Ledger, point: Callable[[str], None]) -> tuple[int, list[str]]:
    number = max(ledger.outcomes(), default=-1) + 1
    chosen = [circle for index, circle in enumerate(CIRCLES) if (number + 1) >> index & 1] or CIRCLES
    aggregated = [client for circle in chosen for client in circle]
    point("round begins")
    ledger.reveal(number, aggregated, promised=PROMISED)
    point("recorded")
    return number, aggregated


def run_round(ledger: Ledger, revealed: Path, point: Callable[[str], None]) -> None:
    number, aggregated = begin_round(ledger, point)
    with revealed.open("a") as file:
        file.write(json.dumps([number, aggregated]) + "\n")
    point("revealed")
    ledger.complete(number)
    point("completed")


def end_open_rounds(ledger: Ledger, point: Callable[[str], None]) -> None:
    for number, outcome in ledger.outcomes().items():
        if outcome is Outcome.REVEALED:
            point("open round found")
            ledger.abort(number, "the server was restarted")
    point("open rounds ended")


def crash(url: str, revealed: Path, command: str, position: int) -> None:
    child = os.fork()  # much faster than a new interpreter; no connection is open yet
    if child == 0:
        if command == "migrate":
            watch_database(die_at(position))
        with Ledger.open(url) as ledger:
            if command == "migrate":
                ledger.skip(SKIPPED, "after the migration")
                os._exit(0)
            end_open_rounds(ledger, go_on)
            if command == "restart":
                begin_round(ledger, go_on)
            point = die_at(position)
            watch_database(point)
            if command == "restart":
                end_open_rounds(ledger, point)
            else:
                run_round(ledger, revealed, point)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        print("killed", flush=True)
    else:
        print("survived" if status == 0 else f"failed: {status}", flush=True)


def claim(url: str, circle: int, count: int) -> None:
    won = []
    with Ledger.open(url) as ledger:
        for number in range(count):
            try:
                ledger.reveal(number, CIRCLES[circle], promised=PROMISED)
            except LedgerConflict:
                continue
            won.append(number)
    print(json.dumps(won), flush=True)


def main() -> None:
    url, revealed = sys.argv[1], Path(sys.argv[2])
    create_engine(url).dispose()  # imports the driver once, not in every child
    print("ready", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "claim":
            claim(url, int(arguments[0]), int(arguments[1]))
        else:
            crash(url, revealed, command, int(arguments[0]))


if __name__ == "__main__":
    main()
