"""A client's own memory: no server, replay or restored backup can make a client answer twice or forget its circle."""

import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.homes import folder_in_memory
from tests.support.ledgers import run_in_threads

from coterie.cohorts import memory as memory_module
from coterie.cohorts.memory import Answer, ClientMemory, MemoryFile, clients_digest
from coterie.cohorts.roster import Client, Roster
from coterie.errors import ConfigError, PeerProtocolError

CIRCLE, OTHERS = ("ann", "bob", "cid"), ("dan", "eve", "fay")
ANN = Client("ann", b"ann")
ROSTER = Roster(
    privacy=3, clients=tuple(Client(name, name.encode()) for name in CIRCLE + OTHERS), circles=((0, 1, 2), (3, 4, 5))
)


def newcomers(*names: str) -> list[Client]:
    return [Client(name, name.encode()) for name in names]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ann.db"


@pytest.fixture
def memory(path: Path) -> Iterator[ClientMemory]:
    with MemoryFile(path) as file:
        found = file.of(ANN)
        found.trust(ROSTER)
        yield found


def again(path: Path) -> ClientMemory:
    """Open the memory again, as a new process does."""
    return MemoryFile(path).of(ANN)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.sets(st.sampled_from(CIRCLE + OTHERS))), max_size=8))
def test_a_client_agrees_to_whole_circles_once_per_session(requests: list[tuple[bytes, set[str]]]) -> None:
    with folder_in_memory() as directory:
        path = Path(directory) / "ann.db"
        again(path).trust(ROSTER)
        expected: list[Answer] = []
        entered: set[bytes] = set()
        for session, aggregated in requests:
            if session not in entered:
                again(path).enter(session)
                entered.add(session)
            whole = aggregated.intersection(CIRCLE) in (set(), set(CIRCLE))
            if whole and session not in [answer.session for answer in expected]:
                again(path).agree(session, 1, aggregated)
                expected.append(Answer(session, clients_digest(aggregated), "ann" in aggregated))
            else:
                with pytest.raises(PeerProtocolError):
                    again(path).agree(session, 1, aggregated)
        assert sorted(again(path).answers()) == sorted(expected)


def test_the_refusal_says_who_is_missing(memory: ClientMemory) -> None:
    memory.enter(b"\x01")
    with pytest.raises(PeerProtocolError, match="separate the circle of ann: without bob, cid"):
        memory.agree(b"\x01", 1, ["ann", "dan"])
    with pytest.raises(PeerProtocolError, match="separate the circle of ann: without ann"):
        memory.agree(b"\x01", 1, ["bob", "cid"])
    assert memory.answers() == []


def test_a_session_is_entered_once_ever(memory: ClientMemory, path: Path) -> None:
    memory.enter(b"\xab")
    with pytest.raises(PeerProtocolError, match="session ab was entered before"):
        again(path).enter(b"\xab")
    again(path).enter(b"\xac")


@given(st.lists(st.integers(1, 4), max_size=12))
@settings(deadline=None)
def test_each_step_of_a_session_is_taken_once_and_in_order(steps: list[int]) -> None:
    with MemoryFile(":memory:") as file:
        memory = file.of(ANN)
        memory.enter(b"session")
        done = 0
        for step in steps:
            if step == done + 1:
                memory.advance(b"session", step)
                done += 1
            else:
                with pytest.raises(PeerProtocolError, match="answered before"):
                    memory.advance(b"session", step)


def test_no_journal_with_earlier_content_is_left_on_disk(memory: ClientMemory, path: Path) -> None:
    """The journal stays, so that its folder needs no sync, and is empty: what is erased must not be in it."""
    memory.enter(b"1" * 32)
    memory.enter(b"2" * 32)
    assert path.with_name(f"{path.name}-journal").read_bytes() == b""


def test_a_session_that_was_never_entered_is_not_answered(memory: ClientMemory) -> None:
    with pytest.raises(PeerProtocolError, match="never entered"):
        memory.advance(b"\x01", 1)


def test_of_many_concurrent_requests_one_is_answered(memory: ClientMemory, path: Path) -> None:
    memory.enter(b"\x01")
    outcomes: list[bool] = []

    def answer(_number: int) -> None:
        try:
            again(path).agree(b"\x01", 1, CIRCLE)
        except PeerProtocolError:
            outcomes.append(False)
        else:
            outcomes.append(True)

    run_in_threads(answer, 4)
    assert sorted(outcomes) == [False, False, False, True]


def test_the_roster_is_remembered(memory: ClientMemory, path: Path) -> None:
    assert again(path).roster == ROSTER
    again(path).trust(ROSTER)  # once more is no change


def test_every_version_must_be_shown(memory: ClientMemory, path: Path) -> None:
    second = ROSTER.join(newcomers("gil", "hal", "ida"))
    third = second.leave(["dan"])
    with pytest.raises(PeerProtocolError, match="version 2 does not follow version 0"):
        memory.trust(third)
    assert again(path).roster == ROSTER
    memory.trust(second, third)
    again(path).trust(ROSTER, second, third)  # what came before is skipped
    assert again(path).roster == third
    for old in (ROSTER, second):
        with pytest.raises(PeerProtocolError, match="does not follow version 2"):
            again(path).trust(old)


def test_every_version_that_leads_to_the_trusted_one_is_known(memory: ClientMemory, path: Path) -> None:
    second = ROSTER.join(newcomers("gil", "hal", "ida"))
    third = second.leave(["dan"])
    assert memory.follows(ROSTER.digest)
    assert not memory.follows(second.digest)
    memory.trust(second, third)
    assert all(again(path).follows(version.digest) for version in (ROSTER, second, third))
    assert not again(path).follows(ROSTER.leave(["dan"]).digest)
    assert not MemoryFile(path).of(Client("bob", b"bob")).follows(ROSTER.digest)  # in the same file


def test_a_link_that_only_the_successor_claims_is_not_followed(memory: ClientMemory, path: Path) -> None:
    """Two clients may share a file, as a renamed node does. What one was shown proves nothing to the other."""
    bob = MemoryFile(path).of(Client("bob", b"bob"))
    forged = msgspec.structs.replace(ROSTER.leave(["dan"]), circles=((0, 1, 3), (2, 4, 5)))
    assert forged.predecessor == ROSTER.digest
    bob.trust(forged)
    assert bob.follows(forged.digest)
    assert not bob.follows(ROSTER.digest)


def test_a_newcomer_follows_a_chain_from_before_it_joined(path: Path) -> None:
    second = ROSTER.join(newcomers("gil"))
    gil = MemoryFile(path).of(Client("gil", b"gil"))
    gil.trust(ROSTER, second)
    assert gil.roster == second
    assert gil.follows(ROSTER.digest)


def test_versions_before_the_trusted_one_are_learnt_later_only_if_they_lead_to_it(path: Path) -> None:
    second = ROSTER.leave(["dan"])
    late = MemoryFile(path).of(ANN)
    late.trust(second)
    other = msgspec.structs.replace(ROSTER, circles=((0, 1, 3), (2, 4, 5)))
    with pytest.raises(PeerProtocolError, match="predecessor"):
        late.trust(other, second)
    assert not late.follows(ROSTER.digest)
    late.trust(ROSTER, second)
    assert late.follows(ROSTER.digest)
    assert again(path).roster == second


def test_a_chain_with_one_bad_link_is_refused_as_a_whole(memory: ClientMemory, path: Path) -> None:
    second = ROSTER.join(newcomers("gil"))
    forged = msgspec.structs.replace(second.leave(["dan"]), predecessor=b"x" * 32)
    with pytest.raises(PeerProtocolError, match="predecessor"):
        memory.trust(second, forged)
    assert again(path).roster == ROSTER


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 0, "predecessor": b""}, "does not follow"),
        ({"predecessor": b"x" * 32}, "predecessor"),
        ({"privacy": 2}, "promised T"),
        ({"circles": ((0, 1, 3), (2, 4, 5))}, "regrouped"),
        ({"clients": (ANN, Client("bob", b"sybil"), *ROSTER.clients[2:])}, "identity keys"),
        ({"clients": (Client("amy", b"amy"), *ROSTER.clients[1:])}, "not on the roster"),
    ],
)
def test_changes_that_a_server_must_not_make_are_refused(
    memory: ClientMemory, changes: dict[str, object], reason: str
) -> None:
    later = ROSTER.leave(["dan"])
    with pytest.raises(PeerProtocolError, match=reason) as refusal:
        memory.trust(msgspec.structs.replace(later, **changes))
    assert refusal.value.peer == "server"
    memory.trust(later)


def test_retirement_is_remembered(memory: ClientMemory, path: Path) -> None:
    """Other members of the circle remember it too: with the old roster, a server could continue without the leaver."""
    retired = ROSTER.leave(["bob"])
    memory.trust(retired)
    with pytest.raises(PeerProtocolError, match="does not follow"):
        again(path).trust(ROSTER)
    unretired = msgspec.structs.replace(retired.join(newcomers("gil")), retired=())
    with pytest.raises(PeerProtocolError, match="taken into use again"):
        again(path).trust(unretired)


def test_a_roster_without_the_clients_own_identity_key_is_refused(path: Path) -> None:
    with pytest.raises(PeerProtocolError, match="another identity key"):
        MemoryFile(path).of(Client("ann", b"other")).trust(ROSTER)
    with pytest.raises(PeerProtocolError, match="not on the roster"):
        MemoryFile(path).of(Client("zoe", b"zoe")).trust(ROSTER)
    with pytest.raises(ConfigError, match="another identity key"):
        MemoryFile(path).of(ANN)


def test_clients_that_share_a_file_do_not_share_a_memory(path: Path) -> None:
    with MemoryFile(path, durable=False) as file:
        ann, bob = file.of(ANN), file.of(ROSTER.clients[1])
        ann.trust(ROSTER)
        ann.enter(b"\x01")
        bob.enter(b"\x01")
        bob.advance(b"\x01", 1)
        ann.advance(b"\x01", 1)
        assert bob.roster is None


CLIENT_SETS = st.sets(st.sampled_from([frozenset(CIRCLE), frozenset(OTHERS), frozenset(CIRCLE + OTHERS)]))


@settings(max_examples=25, deadline=None)
@given(agreed=CLIENT_SETS, noted=CLIENT_SETS, partly=CLIENT_SETS)
def test_rounds_are_known_by_agreed_sums_or_by_the_inputs_of_all(
    agreed: set[frozenset[str]], noted: set[frozenset[str]], partly: set[frozenset[str]]
) -> None:
    sums = [frozenset(CIRCLE), frozenset(OTHERS), frozenset(CIRCLE + OTHERS)]
    rounds = dict(enumerate(sums, start=1))
    with MemoryFile(":memory:") as file:
        clients = {client.name: file.of(client) for client in ROSTER.clients}
        for memory in clients.values():
            memory.trust(ROSTER)
        for number, names in rounds.items():
            if names in agreed:
                clients["ann"].enter(bytes([number]))
                clients["ann"].agree(bytes([number]), 1, names)
            if names in noted or names in partly:
                for name in sorted(names)[names not in noted :]:
                    clients[name].pledge(number, b"input")
        assert file.clients() == set(clients)
        assert file.forgotten(rounds) == [n for n, names in rounds.items() if names not in agreed | noted]


def test_a_new_file_is_for_its_owner_to_read(tmp_path: Path) -> None:
    with MemoryFile(tmp_path / "new.db", durable=False) as file:
        file.of(ANN).trust(ROSTER)
        file.sync()
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_an_unusable_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot keep a client's memory"):
        MemoryFile(tmp_path / "no" / "directory.db")
    (tmp_path / "text.db").write_text("not a database" * 100)
    with pytest.raises(ConfigError, match="cannot keep a client's memory"):
        MemoryFile(tmp_path / "text.db")
    with pytest.raises(ConfigError, match="cannot keep a client's memory in a file without a name"):
        MemoryFile("")


def test_a_retired_circle_stays_together(memory: ClientMemory) -> None:
    """It was summed as a whole before, so a sum over a part of it would separate that part."""
    memory.trust(ROSTER.leave(["bob"]))
    memory.enter(b"\x01")
    with pytest.raises(PeerProtocolError, match="separate the circle of ann"):
        memory.agree(b"\x01", 1, ["ann", "dan", "eve", "fay"])


def test_a_client_that_waits_for_a_circle_is_in_no_sum(path: Path) -> None:
    gil = Client("gil", b"gil")
    with MemoryFile(path) as file:
        memory = file.of(gil)
        memory.trust(ROSTER.join([gil]))
        memory.enter(b"\x01")
        with pytest.raises(PeerProtocolError, match="is not in a circle yet"):
            memory.agree(b"\x01", 1, [*CIRCLE, "gil"])


def test_a_roster_trusted_by_another_process_counts_at_once(memory: ClientMemory, path: Path) -> None:
    later = ROSTER.leave(["bob"])
    again(path).trust(later)
    with pytest.raises(PeerProtocolError, match="not under the trusted roster, version 1"):
        memory.enter(b"\x01", ROSTER.digest)
    memory.enter(b"\x01", later.digest)


def test_a_pledged_input_is_permanent(memory: ClientMemory, path: Path) -> None:
    assert memory.pledge(1, b"one")
    assert again(path).pledge(1, b"one")
    assert not again(path).pledge(1, b"another")
    assert again(path).pledge(1, b"one")
    assert again(path).pledge(2, b"another")


def test_the_first_fixed_value_is_permanent(path: Path, memory: ClientMemory) -> None:
    assert memory.fixed("weight") is None
    assert memory.fix({"weight": b"23"}) == {"weight": b"23"}
    assert again(path).fix({"weight": b"24", "task": b"x"}) == {"weight": b"23", "task": b"x"}
    assert again(path).fixed("weight") == b"23"
    with MemoryFile(path) as file:
        assert file.of(Client("bob", b"bob")).fixed("weight") is None


def test_two_processes_fix_one_value(path: Path, memory: ClientMemory) -> None:
    found: list[bytes] = []

    def fix(number: int) -> None:
        found.append(again(path).fix({"weight": bytes([number])})["weight"])

    run_in_threads(fix, 8)
    assert set(found) == {memory.fixed("weight")}


def test_a_memory_of_an_older_version_gets_a_table_of_fixed_values(path: Path) -> None:
    with MemoryFile(path) as file:
        file.of(ANN).trust(ROSTER)
        with file.writing() as connection:
            connection.execute("DROP TABLE fixed")
    assert again(path).roster == ROSTER
    assert again(path).fix({"weight": b"1"}) == {"weight": b"1"}


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_committed_survives_a_kill(tmp_path: Path, durable: bool) -> None:
    """A simulation does not force data to disk, but committed data survives the end of the process."""
    path = tmp_path / "clients.sqlite"
    program = (
        "import os, signal, sys\n"
        "from coterie.cohorts.memory import MemoryFile\n"
        "from coterie.cohorts.roster import Client\n"
        "memory = MemoryFile(sys.argv[1], durable=sys.argv[2] == 'True').of(Client('ann'))\n"
        "memory.enter(b'session'); memory.pledge(3, b'input')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path), str(durable)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with MemoryFile(path, durable=durable) as file:
        memory = file.of(Client("ann"))
        assert not memory.pledge(3, b"another input")
        with pytest.raises(PeerProtocolError, match="was entered before"):
            memory.enter(b"session")


def test_trusting_a_roster_for_all_clients_equals_trusting_it_one_by_one(path: Path) -> None:
    with MemoryFile(path, durable=False) as file:
        file.of(ANN)  # known before, without a roster
        file.trust(ROSTER)
        assert file.clients() == set(CIRCLE + OTHERS)
        for client in ROSTER.clients:
            assert file.of(client).roster == ROSTER
        file.trust(ROSTER)  # again, when a run is resumed
        later = ROSTER.join(newcomers("gil", "hal", "ida"))
        file.trust(later)
        assert {file.of(client).roster for client in later.clients} == {later}
        with pytest.raises(PeerProtocolError, match="does not follow"):
            file.trust(msgspec.structs.replace(later, version=9))


def test_no_client_trusts_a_roster_under_another_key(path: Path) -> None:
    with MemoryFile(path, durable=False) as file:
        file.trust(ROSTER)
        stranger = msgspec.structs.replace(ROSTER, clients=(Client("ann", b"other"), *ROSTER.clients[1:]))
        with pytest.raises(ConfigError, match="another identity key for ann"):
            file.trust(stranger)


def test_a_trusted_roster_is_read_from_the_file_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have 100,000 clients, and each of them asks for it."""
    with MemoryFile(path, durable=False) as file:
        file.trust(ROSTER)
        monkeypatch.setattr(memory_module, "_recent", {})
        read: list[bytes] = []

        def counted(body: bytes) -> Roster:
            read.append(body)
            return Roster.from_bytes(body)

        monkeypatch.setattr(memory_module, "_read", counted)
        for client in ROSTER.clients:
            found = file.of(client)
            found.enter(b"session of " + client.identity, ROSTER.digest)
            assert found.roster == ROSTER
        assert len(read) == 1
