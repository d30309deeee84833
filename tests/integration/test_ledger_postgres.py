"""The ledger on a real PostgreSQL: the same history as on SQLite, and safe locks and constraints."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from tests.support.ledgers import race

from coterie.bench.ledger import measure_ledger
from coterie.bench.settings import LedgerSettings
from coterie.cohorts import ledger_state
from coterie.cohorts.ledger import Head, Ledger, Outcome
from coterie.cohorts.ledger_store import LedgerStore
from coterie.errors import ConfigError, LedgerConflict, LedgerTampered, SeparationRisk

CIRCLES = (("ann", "bob"), ("çid", "d\x00an"))


@pytest.fixture
def ledger(postgres_url: str) -> Iterator[Ledger]:
    with Ledger.open(postgres_url) as opened:
        yield opened


@pytest.fixture
def administrator(postgres_url: str) -> Iterator[Callable[[str], None]]:
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")

    def execute(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(text(statement))

    yield execute
    engine.dispose()


def run_example(ledger: Ledger) -> Head:
    ledger.reveal(0, CIRCLES[0], promised=2, roster=b"\x00\xff")
    ledger.complete(0)
    ledger.reveal(1, CIRCLES[0] + CIRCLES[1], promised=2)
    with pytest.raises(SeparationRisk, match="because of round 1"):
        ledger.reveal(2, [*CIRCLES[0], "çid"], promised=2)
    ledger.abort(2, "refused \x00")
    with pytest.raises(LedgerConflict, match="already recorded"):
        ledger.reveal(1, CIRCLES[0], promised=2)
    return ledger.skip(2**63 - 1, "nobody")


def test_the_same_history_has_the_same_head_as_on_sqlite(ledger: Ledger, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as local:
        assert run_example(ledger) == run_example(local) == ledger.verify()
        assert list(ledger.entries()) == list(local.entries())
        assert ledger.outcomes() == local.outcomes()
        for before in (None, 0, 1, 2):
            assert ledger.frequencies(before) == local.frequencies(before)
        assert ledger.participation() == local.participation()


def test_inspecting_is_read_only(ledger: Ledger, postgres_url: str) -> None:
    head = run_example(ledger)
    with Ledger.inspect(postgres_url) as inspected:
        assert inspected.verify(head) == head
        assert inspected.participation() == ledger.participation()
    store = LedgerStore.open(postgres_url, create=False, timeout=1, inspecting=True)
    with store.reading() as connection, pytest.raises(DBAPIError, match="read-only transaction"):
        connection.exec_driver_sql("DELETE FROM coterie_ledger")
    store.close()


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        ("UPDATE coterie_ledger SET body = body || '\\x20' WHERE sequence = 3", 3),
        ("UPDATE coterie_ledger SET round = 8 WHERE sequence = 2", 2),
        ("DELETE FROM coterie_ledger WHERE sequence = 2", 2),
        ("DELETE FROM coterie_ledger WHERE sequence >= 4", 4),
    ],
)
def test_tampering_is_found(ledger: Ledger, administrator: Callable[[str], None], change: str, bad: int) -> None:
    head = run_example(ledger)
    administrator(change)
    with pytest.raises(LedgerTampered) as found:
        ledger.verify(expected_head=head)
    assert found.value.sequence == bad


def test_a_ledger_needs_no_right_to_update_or_delete(
    postgres_url: str, ledger: Ledger, administrator: Callable[[str], None]
) -> None:
    administrator("DROP ROLE IF EXISTS appender")
    administrator("CREATE ROLE appender LOGIN")
    administrator("GRANT SELECT, INSERT ON coterie_ledger TO appender")
    restricted = postgres_url.replace("coterie@", "appender@")
    with Ledger.open(restricted) as appender:
        assert run_example(appender) == ledger.verify()
    engine = create_engine(restricted)
    for statement in ("DELETE FROM coterie_ledger", "UPDATE coterie_ledger SET round = 7"):
        with pytest.raises(Exception, match="permission denied"), engine.begin() as connection:
            connection.execute(text(statement))
    engine.dispose()
    administrator("DROP TABLE coterie_ledger")
    administrator("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(ConfigError, match="permission denied"):
        Ledger.open(restricted)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_two_servers_race_whatever_the_defaults_of_the_database(
    postgres_url: str, administrator: Callable[[str], None], isolation: str
) -> None:
    database = postgres_url.split("?")[0].rsplit("/", 1)[1]
    administrator(f"ALTER DATABASE {database} SET default_transaction_isolation TO '{isolation}'")
    administrator(f"ALTER DATABASE {database} SET synchronous_commit TO off")
    won = race(postgres_url, 15, between=True)
    assert sorted(won[0] + won[1]) == list(range(15))
    with Ledger.open(postgres_url, create=False) as ledger:
        assert ledger.verify().sequence == 45
        outcomes = list(ledger.outcomes().values())
        assert (outcomes.count(Outcome.REVEALED), outcomes.count(Outcome.SKIPPED)) == (15, 30)


def test_a_commit_waits_for_the_disk_even_if_the_database_would_not(
    postgres_url: str, administrator: Callable[[str], None]
) -> None:
    database = postgres_url.split("?")[0].rsplit("/", 1)[1]
    administrator(f"ALTER DATABASE {database} SET synchronous_commit TO off")
    store = LedgerStore.open(postgres_url, create=True, timeout=5)
    with store.reading() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off"
    with store.writing() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    store.close()


def test_without_the_lock_the_constraints_still_admit_only_one_server(postgres_url: str, ledger: Ledger) -> None:
    """With a database whose locks are unknown, another server commits between our read and our write."""
    overtaken: list[bool] = []

    def forget_to_lock(
        _connection: object, _cursor: object, statement: str, parameters: object, *_: object
    ) -> tuple[str, object]:
        return ("SELECT 1" if "pg_advisory" in statement else statement), parameters

    def overtake(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT") and not overtaken:
            overtaken.append(True)
            with Ledger.open(postgres_url) as faster:
                faster.reveal(5, CIRCLES[1], promised=2)

    event.listen(Engine, "before_cursor_execute", forget_to_lock, retval=True)
    event.listen(Engine, "before_cursor_execute", overtake)
    try:
        with pytest.raises(LedgerConflict, match="another server"):
            ledger.reveal(4, CIRCLES[0], promised=2)
    finally:
        event.remove(Engine, "before_cursor_execute", forget_to_lock)
        event.remove(Engine, "before_cursor_execute", overtake)
    assert ledger.verify().sequence == 1
    ledger.reveal(4, CIRCLES[0], promised=2)
    assert [number for number, _ in ledger.rows()] == [5, 4]


def test_a_server_that_holds_the_ledger_too_long_is_a_conflict_for_the_others(postgres_url: str) -> None:
    holder = LedgerStore.open(postgres_url, create=True, timeout=5)
    with Ledger.open(postgres_url, timeout=0.05) as impatient:
        with holder.writing(), pytest.raises(LedgerConflict, match="lock timeout"):
            impatient.skip(0, "hurry")
        assert impatient.skip(0, "again").sequence == 1
    holder.close()


def test_a_lost_connection_is_replaced_before_the_next_round(
    ledger: Ledger, administrator: Callable[[str], None]
) -> None:
    ledger.reveal(0, CIRCLES[0], promised=2)
    administrator(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    ledger.complete(0)
    assert ledger.outcomes() == {0: Outcome.COMPLETED}


def test_an_unreachable_server_is_a_configuration_error(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="cannot open the ledger") as refusal:
        Ledger.open(f"postgresql+psycopg://someone:hidden@/db?host={tmp_path}")
    assert "hidden" not in str(refusal.value)


def test_a_server_starts_from_a_checkpoint_and_the_benchmark_measures_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_state, "_LEAST_COST", 1000)
    cost = measure_ledger(LedgerSettings(clients=200, rounds=40, cohort=40, circle=10), postgres_url)
    assert cost.entries == 80 + cost.checkpoints
    assert 0 < cost.replayed < cost.entries // 3
    with Ledger.open(postgres_url, create=False) as ledger:
        assert ledger.latest() == 40
        assert ledger.count(["client-0000000", "nobody"]).tolist() == [
            sum("client-0000000" in row for _, row in ledger.rows()),
            0,
        ]
