"""Rounds on Flower in two trips: nodes that leave, prekeys that run out, restored and copied folders, crashes."""

import contextlib
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import Answer, FakeGrid, initial_arrays, make_app, make_grid
from tests.support.flower_strategies import QUIET
from tests.support.homes import latest_roster

from coterie.cohorts.database_file import DatabaseFile
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.deployment.events import RoundEvent, StepEvent
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.prekey_supply import FILE, MOST_ASKED
from coterie.deployment.roster_folder import RosterFolder
from coterie.deployment.sessions import Parked, SessionReplies
from coterie.errors import Blame, NothingTrained, WrongShares
from coterie.rounds import RoundResult
from coterie.secagg import messages
from coterie.secagg.prekeys.messages import PREKEYS, SHARE_BYTES, OpenedShares
from coterie.transports.flower import PrivateStrategy, private_mod
from coterie.transports.flower.records import header_of, pack, payload_of

CONTRIBUTE, SURVIVORS, PROOF = 10, 12, 14
"""The tags of the server's messages in the first, second and third trip."""
NODE = 100
NAME = "partition-0"


def tag_of(message: Message) -> int:
    """Return the tag of the protocol's message; -1 for a hello."""
    payload = payload_of(message.content, "server")
    return payload[1] if payload else -1


def play(grid: FakeGrid, rounds: int = 1, **settings: Any) -> list[RoundResult[Any]]:  # noqa: ANN401
    kept = PrivateStrategy(FedAvg(**QUIET), **{"deadline": 1, "empty_rounds": 0, **settings})
    kept.start(grid, initial_arrays(), rounds, timeout=1)
    return kept.grid.results if kept.grid else []


def sums(results: list[RoundResult[Any]]) -> list[int]:
    """Return the number of clients in the sum of each round; 0 for a round without a result."""
    return [len(result.revealed) if result.value is not None else 0 for result in results]


def trips(grid: FakeGrid) -> Counter[int]:
    """Count the messages with each tag to the last node, which never leaves."""
    return Counter(
        tag_of(message) for message in grid.sent if message.metadata.dst_node_id == NODE + len(grid.nodes) - 1
    )


def losing(tag: int, *nodes: int) -> Callable[[Message, Answer], Message | None]:
    """Return a delivery that loses the answers of these nodes to messages with this tag."""

    def lose(message: Message, answer: Answer) -> Message | None:
        reply = answer(message)
        return None if tag_of(message) == tag and message.metadata.dst_node_id in nodes else reply

    return lose


def mates(home: Path, name: str) -> set[str]:
    return {client.name for client in latest_roster(home / "server").circle_of(name) or ()}


def one_of_each_circle(home: Path, circles: int) -> list[int]:
    """Return the first node of each of some circles, without the circle of the last node."""
    roster = latest_roster(home / "server")
    others = [circle for circle in roster.circles if len(roster.names) - 1 not in circle]
    return [NODE + int(roster.names[circle[0]].removeprefix("partition-")) for circle in others[:circles]]


# Nodes that leave.


@pytest.mark.parametrize(
    ("lost", "aggregated", "proofs"), [(0, 8, 0), (1, 6, 0), (2, 4, 1)], ids=["nobody", "few", "many"]
)
def test_a_third_trip_is_made_only_if_many_left_before_they_contributed(
    home: Path, lost: int, aggregated: int, proofs: int
) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 8), rounds=0)
    grid = make_grid(app, 8, losing(CONTRIBUTE, *one_of_each_circle(home, lost)))
    assert sums(play(grid)) == [aggregated]
    assert trips(grid) == {-1: 2, CONTRIBUTE: 1, SURVIVORS: 1, **({PROOF: 1} if proofs else {})}


@pytest.mark.parametrize(("lost", "aggregated"), [(2, 8), (3, 0)], ids=["a quorum is left", "too few are left"])
def test_nodes_that_leave_after_they_contributed_are_in_the_sum_while_a_quorum_is_left(
    lost: int, aggregated: int
) -> None:
    grid = make_grid(make_app([private_mod]), 8, losing(SURVIVORS, *range(NODE, NODE + lost)))
    assert sums(play(grid)) == [aggregated]


def test_a_session_that_too_many_leave_before_they_sign_has_no_result(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 8), rounds=0)
    gone = one_of_each_circle(home, 2)
    silent = next(node for node in range(NODE, NODE + 8) if node not in gone)

    def lose(message: Message, answer: Answer) -> Message | None:
        lost = gone if tag_of(message) == CONTRIBUTE else [silent] if tag_of(message) == SURVIVORS else []
        return None if message.metadata.dst_node_id in lost else answer(message)

    (result,) = play(make_grid(app, 8, lose))
    assert "5 clients confirmed the survivors; 6 are needed" in result.reason
    with Ledger.inspect(home / "server" / "ledger.sqlite") as ledger:
        assert len(ledger.revealed(1)) == 4  # nodes that signed answer for no other list, so the row counts


# Nodes that lie.


def lying(
    node: int, *, silent: tuple[int, ...] = (), about: slice = slice(None)
) -> Callable[[Message, Answer], Message | None]:
    """Return a delivery in which a node reveals made-up shares of these dealers, and silent ones reveal nothing."""

    def lie(message: Message, answer: Answer) -> Message | None:
        reply, destination = answer(message), message.metadata.dst_node_id
        if tag_of(message) != SURVIVORS or destination not in (node, *silent):
            return reply
        if destination in silent:
            return None
        opened = messages.decode(payload_of(reply.content, "node"), OpenedShares, "node", None)
        rng = np.random.default_rng(0)
        wrong = tuple(
            msgspec.structs.replace(
                entry, shares=(rng.bytes(SHARE_BYTES - 1) + b"\0") * (len(entry.shares) // SHARE_BYTES)
            )
            for entry in opened.dealers[about]
        )
        changed = {entry.dealer: entry for entry in (*opened.dealers, *wrong)}
        payload = messages.encode(msgspec.structs.replace(opened, dealers=tuple(changed.values())))
        return Message(pack(payload, header_of(reply.content) or {}), reply_to=message)

    return lie


def test_a_node_that_reveals_wrong_shares_does_not_spoil_the_sum_and_is_named(log: pytest.LogCaptureFixture) -> None:
    events: list[StepEvent | RoundEvent] = []
    (result,) = play(make_grid(make_app([private_mod]), 8, lying(NODE)), observer=events.append)
    assert sums([result]) == [8]
    assert result.blame == Blame((NAME,))
    assert isinstance(events[-1], RoundEvent)
    assert events[-1].blamed == (NAME,)
    assert f"round 1 has a result, but {NAME} dealt or sent wrong shares" in log.text
    assert f"`coterie roster retire {NAME}`" in log.text


def test_the_log_advises_no_retirement_without_proof(log: pytest.LogCaptureFixture) -> None:
    """A wrong share of one dealer is a dispute between two nodes."""
    events: list[StepEvent | RoundEvent] = []
    delivery = lying(NODE, about=slice(-1, None))
    (result,) = play(make_grid(make_app([private_mod]), 8, delivery), observer=events.append)
    assert sums([result]) == [8]
    ((_dealer, holder),) = result.blame.disputes
    assert (result.blame.proven, holder) == ((), NAME)
    assert isinstance(events[-1], RoundEvent)
    assert events[-1].blamed == ()
    assert "round 1 has a result, but one of each pair (dealer / holder) dealt or sent a wrong share" in log.text
    assert "broke the protocol" not in log.text
    assert "roster retire" not in log.text


def test_a_round_ended_by_wrong_shares_names_no_client_without_proof(log: pytest.LogCaptureFixture) -> None:
    (result,) = play(make_grid(make_app([private_mod]), 4, lying(NODE, silent=(NODE + 1,))))
    assert isinstance(result.error, WrongShares)
    assert result.blame == Blame()
    assert "too few shares are left to prove who dealt or sent wrong ones" in log.text
    assert "broke the protocol" not in log.text


# Prekeys.


def test_the_server_keeps_a_few_prekeys_of_each_node_and_no_secrets(home: Path) -> None:
    play(make_grid(make_app([private_mod]), 4), rounds=3)
    with PrekeyStock(home / "server" / FILE) as stock:
        assert stock.counts() == dict.fromkeys((f"partition-{number}" for number in range(4)), PREKEYS)
        assert len(stock.used(NAME)) == 3
    with contextlib.closing(sqlite3.connect(home / "nodes" / NAME / "memory.sqlite")) as memory:
        secrets = [secret for (secret,) in memory.execute("SELECT secret FROM prekeys WHERE secret IS NOT NULL")]
    assert len(secrets) == PREKEYS
    stored = b"".join(path.read_bytes() for path in (home / "server").glob(f"{FILE}*"))
    assert not any(secret in stored for secret in secrets)


def test_the_papers_protocol_needs_no_prekeys(home: Path) -> None:
    assert sums(play(make_grid(make_app([private_mod]), 4), protocol="papers")) == [4]
    assert not (home / "server" / FILE).exists()
    with contextlib.closing(sqlite3.connect(home / "nodes" / NAME / "memory.sqlite")) as memory:
        assert memory.execute("SELECT count(*) FROM prekeys").fetchone() == (0,)


def test_a_node_whose_prekeys_ran_out_is_asked_for_more() -> None:
    """Each answer that is lost costs a prekey that the server does not know to be used."""
    lost = Counter[int]()

    def lose(message: Message, answer: Answer) -> Message | None:
        reply = answer(message)
        if tag_of(message) == CONTRIBUTE and message.metadata.dst_node_id == NODE and lost[NODE] < PREKEYS:
            lost[NODE] += 1
            return None
        return reply

    grid = make_grid(make_app([private_mod]), 6, lose)
    results = play(grid, rounds=PREKEYS + 2)
    assert sums(results) == [4] * PREKEYS + [6, 6]
    hellos = Counter(message.metadata.dst_node_id for message in grid.sent if tag_of(message) == -1)
    assert hellos == {NODE: 3, **dict.fromkeys(range(NODE + 1, NODE + 6), 2)}


def test_a_node_that_gives_no_prekeys_is_left_out_and_not_asked_in_every_round(
    home: Path, log: pytest.LogCaptureFixture
) -> None:
    """A node of an earlier version of Coterie behaves like this, because it does not know the request."""

    def forget(message: Message, answer: Answer) -> Message:
        header = header_of(message.content)
        if message.metadata.dst_node_id == NODE and header and "prekeys" in header:
            del header["prekeys"]
        return answer(message)

    grid = make_grid(make_app([private_mod]), 6, forget)
    results = play(grid, rounds=MOST_ASKED + 2)
    assert sums(results) == [4] * len(results)
    assert set(results[0].revealed).isdisjoint(mates(home, NAME))
    assert (
        sum(tag_of(message) == -1 and message.metadata.dst_node_id == NODE for message in grid.sent) == 1 + MOST_ASKED
    )
    assert f"{NAME} has no prekeys, and takes no part in rounds of two trips: gave no prekeys" in log.text


def test_a_node_of_an_earlier_version_keeps_its_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory has no tables for prekeys, and it was shown only the latest roster."""
    app = make_app([private_mod])
    play(make_grid(app, 4), rounds=0)
    play(make_grid(app, 5), rounds=0)
    play(make_grid(app, 6), rounds=0)
    with monkeypatch.context() as earlier:
        earlier.setattr(RosterFolder, "since", lambda folder, _digest, _pin=b"": folder.versions[-1:])
        assert sums(play(make_grid(app, 6), protocol="papers")) == [6]
    for number in range(6):
        with contextlib.closing(sqlite3.connect(home / "nodes" / f"partition-{number}" / "memory.sqlite")) as memory:
            assert memory.execute("SELECT count(*) FROM rosters").fetchone() == (1,)
            for table in ("prekeys", "contributions", "retention"):
                memory.execute(f"DROP TABLE {table}")
            memory.commit()
    assert sums(play(make_grid(app, 6), rounds=2)) == [6, 6]


# Folders that are restored or copied.


@pytest.mark.parametrize("copied", [False, True], ids=["restored", "copied"])
def test_a_node_with_an_old_copy_of_its_folder_is_noticed_and_makes_new_prekeys(
    home: Path, tmp_path: Path, copied: bool, log: pytest.LogCaptureFixture
) -> None:
    app, folder, copy = make_app([private_mod]), home / "nodes" / NAME, tmp_path / "copy"
    play(make_grid(app, 4))
    shutil.copytree(folder, copy)
    assert sums(play(make_grid(app, 4), rounds=PREKEYS)) == [4] * PREKEYS
    grid = make_grid(app, 4)
    if copied:
        grid.nodes[NODE].node_config["coterie-folder"] = str(copy)
    else:
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
    assert sums(play(grid, rounds=2)) == [4, 4]
    assert (
        f"prekeys of {NAME} are not accepted: offered a prekey that it used before: its disk was restored" in log.text
    )
    renewed = [message for message in grid.sent if (header := header_of(message.content)) and header.get("renew")]
    assert [message.metadata.dst_node_id for message in renewed] == [NODE]


def test_a_server_with_an_old_copy_of_its_stock_gets_new_prekeys_in_the_next_run(home: Path) -> None:
    app = make_app([private_mod])
    play(make_grid(app, 4))
    backup = {path: path.read_bytes() for path in (home / "server").glob(f"{FILE}*")}
    play(make_grid(app, 4), rounds=2)
    for path, content in backup.items():
        path.write_bytes(content)
    assert sums(play(make_grid(app, 4), rounds=2)) == [4, 4]
    (home / "server" / FILE).unlink()
    assert sums(play(make_grid(app, 4), rounds=2)) == [4, 4]


# Floors.


@pytest.mark.parametrize(
    ("floor", "protocol", "summed"),
    [
        ({"coterie-protocol": "papers"}, "auto", 0),
        ({"coterie-protocol": "papers"}, "papers", 4),
        ({"coterie-protocol": "two-trips"}, "auto", 4),
        ({"coterie-protocol": "two-trips"}, "papers", 0),
        ({"coterie-most-shares": 7}, "auto", 0),
        ({"coterie-most-shares": 8}, "auto", 4),
        ({"coterie-prekey-days": 1e-6}, "papers", 4),
    ],
)
def test_an_operator_may_refuse_either_protocol_or_a_session_that_costs_too_much(
    floor: dict[str, Any], protocol: str, summed: int
) -> None:
    assert sums(play(make_grid(make_app([private_mod]), 4, config=floor), protocol=protocol)) == [summed]


def test_a_run_whose_protocol_no_node_accepts_ends_with_the_reason() -> None:
    grid = make_grid(make_app([private_mod]), 4, config={"coterie-protocol": "papers"})
    with pytest.raises(
        NothingTrained, match=r"4 clients sit out without prekeys.*requires stricter terms than this session"
    ):
        play(grid, empty_rounds=1)


# Crashes.


class Crash(BaseException):
    """The immediate end of a process."""


@contextlib.contextmanager
def crashing(at: int, *, before: bool) -> Iterator[None]:
    """End the process before or after the commit with this number."""
    commits, writing = [0], DatabaseFile.writing

    @contextlib.contextmanager
    def counted(file: DatabaseFile) -> Iterator[sqlite3.Connection]:
        with writing(file) as connection:
            yield connection
            commits[0] += 1
            if before and commits[0] == at:
                raise Crash
        if not before and commits[0] == at:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseFile, "writing", counted)
        yield


class Killing:
    """A delivery that kills one node at a commit of one step, starts it again and asks it again."""

    def __init__(self, tag: int, at: int, *, before: bool) -> None:
        self._tag, self._at, self._before = tag, at, before
        self.killed = False
        self.answers: dict[bytes, set[str]] = {}

    def __call__(self, message: Message, answer: Answer) -> Message:
        mine = message.metadata.dst_node_id == NODE
        if not mine or tag_of(message) != self._tag or self.killed:
            return self._noted(message, answer(message))
        try:
            with crashing(self._at, before=self._before):
                return self._noted(message, answer(message))
        except Crash:
            self.killed = True
        return self._noted(message, answer(message))

    def _noted(self, message: Message, reply: Message) -> Message:
        if payload := payload_of(message.content, "server"):
            said = reply.content.object_id if reply.has_content() else str(reply.error.reason)
            self.answers.setdefault(payload + bytes([message.metadata.dst_node_id]), set()).add(said)
        return reply


@contextlib.contextmanager
def crashing_at_file(*, before: bool) -> Iterator[None]:
    """End the process when it writes a reply to a file: before it or after it."""
    write = SessionReplies.write

    def killed(replies: SessionReplies, message: bytes, reply: bytes) -> None:
        if not before:
            write(replies, message, reply)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionReplies, "write", killed)
        yield


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every contribution a large one, whose reply is in its own file."""
    monkeypatch.setattr("coterie.cohorts.memory.LARGE_REPLY", 0)


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_node_killed_when_it_writes_a_large_reply_gives_one_answer(home: Path, before: bool) -> None:
    """The prekey is used after the file is written, so a node that is asked again contributes as for the first time."""
    crashed: list[bool] = []

    def kill(message: Message, answer: Answer) -> Message:
        if message.metadata.dst_node_id != NODE or tag_of(message) != CONTRIBUTE or crashed:
            return answer(message)
        crashed.append(True)
        with crashing_at_file(before=before), contextlib.suppress(Crash):
            answer(message)
        assert (home / "nodes" / NAME / "sessions" / "7").exists() is not before
        return answer(message)

    assert sums(play(make_grid(make_app([private_mod]), 4, kill))) == [4]
    assert crashed


@pytest.mark.usefixtures("in_files")
def test_a_large_reply_is_in_a_file_until_the_survivors_are_known(home: Path) -> None:
    seen: dict[int, list[bool]] = {}
    file = home / "nodes" / NAME / "sessions" / "7"

    def look(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        if message.metadata.dst_node_id == NODE:
            seen.setdefault(tag_of(message), []).append(file.exists())
            with contextlib.closing(sqlite3.connect(home / "nodes" / NAME / "memory.sqlite")) as memory:
                (kept,) = memory.execute("SELECT max(length(reply)) FROM contributions").fetchone()
            assert tag_of(message) != CONTRIBUTE or kept is None or kept < len(payload_of(reply.content, NAME))
        return reply

    assert sums(play(make_grid(make_app([private_mod]), 4, look), rounds=2)) == [4, 4]
    assert (seen[CONTRIBUTE], seen[SURVIVORS]) == ([True, True], [False, False])


def test_a_state_of_the_papers_protocol_is_deleted_when_a_session_in_two_trips_begins(home: Path) -> None:
    """The server has abandoned that session. Its file has secrets, and nothing else would replace it."""
    file = home / "nodes" / NAME / "sessions" / "7"
    found = []

    def plant(message: Message, answer: Answer) -> Message:
        if message.metadata.dst_node_id == NODE and tag_of(message) == CONTRIBUTE:
            with Node(NodeSettings.read({"partition-id": 0})).session(7) as place:
                place.write(Parked(b"request", b"reply", b"secret"), time.time() + 60)
            reply = answer(message)
            found.append(file.exists())
            return reply
        return answer(message)

    assert sums(play(make_grid(make_app([private_mod]), 4, plant))) == [4]
    assert found == [False]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("tag", "large"),
    [(-1, False), (CONTRIBUTE, False), (CONTRIBUTE, True), (SURVIVORS, False), (SURVIVORS, True)],
    ids=["hello", "contribute", "contribute-large", "reveal", "reveal-large"],
)
def test_a_node_killed_at_any_write_gives_one_answer_and_stays_in_the_round(
    tag: int, large: bool, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every write, a node that was killed and is asked again takes part, and no step gets two answers."""
    if large:
        monkeypatch.setattr("coterie.cohorts.memory.LARGE_REPLY", 0)
    app, killed = make_app([private_mod]), 0
    for at in range(1, 20):
        killing = Killing(tag, at, before=before)
        assert sums(play(make_grid(app, 4, killing))) == [4]
        assert [len(given) for given in killing.answers.values()] == [1] * 8
        if not killing.killed:
            break
        killed += 1
    assert 1 <= killed < 19


class Stop(BaseException):
    """The end of the server's process."""


@pytest.mark.parametrize("tag", [CONTRIBUTE, SURVIVORS], ids=["contribute", "reveal"])
@pytest.mark.parametrize("answered", [0, 1, 4])
def test_a_server_that_ends_in_a_round_resumes_from_its_checkpoint(home: Path, tag: int, answered: int) -> None:
    app, seen = make_app([private_mod]), Counter[int]()

    def end(message: Message, answer: Answer) -> Message:
        seen[tag_of(message)] += 1
        if seen[tag] > 4 + answered:
            raise Stop
        return answer(message)

    with pytest.raises(Stop):
        play(make_grid(app, 4, end if answered < 4 else _ending_between(tag)), rounds=3)
    results = play(make_grid(app, 4), rounds=3)
    assert sums(results) == [4, 4]  # the first round is in the checkpoint
    with Ledger.inspect(home / "server" / "ledger.sqlite") as ledger:
        assert ledger.latest() == (4 if tag == SURVIVORS else 3)


def _ending_between(tag: int) -> Callable[[Message, Answer], Message]:
    """Return a delivery that ends the server when it has all answers of this step of the second round."""
    seen = Counter[int]()

    def end(message: Message, answer: Answer) -> Message:
        seen[tag_of(message)] += 1
        reply = answer(message)
        if seen[tag] == 8:
            raise Stop
        return reply

    return end
