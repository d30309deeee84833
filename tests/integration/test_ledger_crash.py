"""A server that is killed at every point of a round: every revealed sum is recorded."""

import json
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.support.programs import started

from coterie.cohorts.ledger import EntryKind, Head, Ledger, Outcome

PROGRAM = Path(__file__).with_name("ledger_rounds.py")
OLD_LEDGER = Path(__file__).parents[1] / "unit" / "cohorts" / "ledger_format_1.sqlite"
SKIPPED = 99
MOST_POINTS = 300


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("postgres_url"))


def check_after_crash(url: str, revealed: Path, kept: Head | None) -> tuple[Head, set[int], set[int]]:
    """Return the head, the recorded rounds and the revealed rounds; all revealed sums must be recorded."""
    lines = revealed.read_text().splitlines() if revealed.exists() else []
    seen = {number: tuple(sorted(aggregated)) for number, aggregated in map(json.loads, lines)}
    with Ledger.open(url) as ledger:
        head = ledger.verify(expected_head=kept)
        rows = dict(ledger.rows())
    assert seen.items() <= rows.items()
    return head, set(rows), set(seen)


def test_killed_at_every_point_the_ledger_has_every_row_that_was_seen(url: str, tmp_path: Path) -> None:
    revealed = tmp_path / "revealed.jsonl"
    head, recorded, seen = check_after_crash(url, revealed, None)
    own_steps = {
        "round": {"round begins", "recorded", "revealed", "completed"},
        "restart": {"open round found", "open rounds ended"},
    }
    with started(PROGRAM, url, revealed) as victim:
        for command, steps in own_steps.items():
            points = set()
            for position in range(MOST_POINTS):
                victim.tell(f"{command} {position}")
                answer = victim.hear()
                if answer == "survived":  # it has fewer points: all were tried, and rounds can still be played
                    break
                points.add(answer)
                assert victim.hear() == "killed"
                head, recorded, seen = check_after_crash(url, revealed, head)
            assert answer == "survived"
            assert steps | {"before insert", "after insert", "before commit", "connection given back"} <= points
    head, recorded, seen = check_after_crash(url, revealed, head)
    assert seen < recorded, "no crash came between the record and the reveal"
    with Ledger.open(url) as ledger:
        outcomes = ledger.outcomes()
    assert set(outcomes) == recorded
    assert set(outcomes.values()) == {Outcome.COMPLETED, Outcome.ABORTED_AFTER_REVEAL}
    assert all(outcomes[number] is not Outcome.COMPLETED for number in recorded - seen)


def test_two_processes_race_for_the_same_rounds(url: str, tmp_path: Path) -> None:
    rounds = 30
    with started(PROGRAM, url, tmp_path / "one") as one, started(PROGRAM, url, tmp_path / "two") as two:
        one.tell(f"claim 0 {rounds}")
        two.tell(f"claim 1 {rounds}")
        won = [set(json.loads(one.hear())), set(json.loads(two.hear()))]
    assert won[0] | won[1] == set(range(rounds))
    assert not won[0] & won[1]
    with Ledger.open(url) as ledger:
        assert ledger.verify().sequence == rounds
        assert {number for number, names in ledger.rows() if names[0] == "client0a"} == won[0]


@pytest.fixture
def old_rows() -> list[tuple[object, ...]]:
    """The entries of a ledger of format 1."""
    connection = sqlite3.connect(OLD_LEDGER)
    rows = connection.execute("SELECT * FROM coterie_ledger ORDER BY sequence").fetchall()
    connection.close()
    return rows


def restore(url: str, rows: list[tuple[object, ...]]) -> Head:
    """Replace the entries of a database by these; return the head."""
    Ledger.open(url).close()
    names = ("sequence", "round", "kind", "previous", "digest", "body")
    insert = text("INSERT INTO coterie_ledger VALUES (:sequence, :round, :kind, :previous, :digest, :body)")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM coterie_ledger"))
        connection.execute(insert, [dict(zip(names, row, strict=True)) for row in rows])
    engine.dispose()
    with Ledger.open(url) as ledger:
        return ledger.verify()


def test_killed_at_every_point_of_its_migration_a_ledger_is_old_or_new(
    url: str, tmp_path: Path, old_rows: list[tuple[object, ...]]
) -> None:
    """Either both the checkpoint and the first entry of the new format are recorded, or neither is."""
    lengths = set()
    with started(PROGRAM, url, tmp_path / "nothing") as victim:
        for position in range(MOST_POINTS):
            old = restore(url, old_rows)
            victim.tell(f"migrate {position}")
            answer = victim.hear()
            with Ledger.open(url) as ledger:
                lengths.add(ledger.verify(old).sequence - old.sequence)
                if SKIPPED not in ledger.outcomes():  # continues where the other was killed
                    ledger.skip(SKIPPED, "after the crash")
                assert ledger.verify(old).sequence == old.sequence + 2
                assert [entry.kind for entry in ledger.entries()][-2:] == [EntryKind.CHECKPOINT, EntryKind.SKIP]
            if answer == "survived":
                break
            assert victim.hear() == "killed"
    assert answer == "survived"
    assert lengths == {0, 2}
