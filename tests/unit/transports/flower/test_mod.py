import pickle
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from tests.support.flower import Answer, FakeGrid, FakeNode, initial_arrays, make_app, make_grid, reply_of
from tests.support.flower_strategies import QUIET, results_of, sums_of
from tests.support.homes import latest_roster
from tests.support.interpreter import printed_by

from coterie.crypto import signing
from coterie.crypto.entropy import DeterministicEntropy
from coterie.deployment.engine import HELLO, STEP
from coterie.deployment.form import form_under
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.reasons import Reason
from coterie.deployment.sessions import LEEWAY, Parked
from coterie.errors import ConfigError
from coterie.rounds import Member
from coterie.rounds.member import ANY_TERMS
from coterie.secagg import Server, Terms
from coterie.secagg.invitation import is_invitation, read_invitation
from coterie.secagg.prekeys.book import is_book_message
from coterie.transports.flower import PrivateStrategy, private_mod
from coterie.transports.flower.mod import PrivateMod
from coterie.transports.flower.records import header_of, model_of, pack, payload_of, without_ours

PROTOCOLS = pytest.mark.parametrize("protocol", ["papers", "two-trips"])


def play(grid: FakeGrid, rounds: int = 1, protocol: str = "auto") -> PrivateStrategy:
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=2, empty_rounds=0, protocol=protocol)
    kept.start(grid, initial_arrays(), rounds, timeout=2)
    return kept


def entropy(name: str) -> DeterministicEntropy:
    return DeterministicEntropy(name.encode())


def rounding() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize(("protocol", "signed"), [("papers", [2, 3, 3, 3]), ("two-trips", [1, 1, 1, 1])])
def test_a_process_that_plays_many_nodes_computes_each_signature_once(
    monkeypatch: pytest.MonkeyPatch, protocol: str, signed: list[int]
) -> None:
    checked: list[bytes] = []
    answering = False

    def read(public: bytes) -> Ed25519PublicKey:
        checked.extend([public] if answering else [])
        return Ed25519PublicKey.from_public_bytes(public)

    def listen(message: Message, answer: Answer) -> Message:
        nonlocal answering
        answering = True
        try:
            return answer(message)
        finally:
            answering = False

    monkeypatch.setattr(signing, "Ed25519PublicKey", SimpleNamespace(from_public_bytes=read))
    assert sums_of(play(make_grid(make_app([private_mod]), 4, listen), protocol=protocol)) == [4]
    # In the papers' protocol, the keys and masks of all nodes, and the survivors that a quorum of three signed; in two
    # trips, the prekeys of all nodes. Each is computed once, although three or four nodes check it.
    assert sorted(Counter(checked).values()) == signed


def test_messages_over_flower_are_byte_for_byte_those_in_memory(home: Path) -> None:
    said: dict[str, list[tuple[bytes, bytes]]] = {}
    template: list[Message] = []

    def listen(message: Message, answer: Answer) -> Message:
        reply = answer(message)
        if (sent := payload_of(message.content, "server")) and not reply.has_error():
            name = f"partition-{message.metadata.dst_node_id - 100}"
            said.setdefault(name, []).append((sent, payload_of(reply.content, name)))
            template.extend([message] if message.content.array_records.get("arrays") else [])
        return reply

    play(make_grid(make_app([PrivateMod(entropy, rounding)]), 4, listen), protocol="papers")

    received = without_ours(template[0].content)
    form = form_under(latest_roster(home / "server"), "train")
    terms: Terms = read_invitation(next(sent for sent, _ in said["partition-0"] if is_invitation(sent)))
    app = make_app()

    def contribute(number: int) -> Callable[[Terms], object]:
        request = Message(received, 100 + number, "train")
        reply = FakeNode(app, {"partition-id": number}).answer(request)
        scaled = form.scale(model_of(received), reply_of(reply.content))
        return lambda _terms: form.encode(scaled, 10 * (number + 1), rounding())

    members = {
        name: Member(
            name,
            contribute(number),  # type: ignore[arg-type]
            floor=ANY_TERMS,
            identity=Node(NodeSettings.read({"partition-id": number})).identity,
            entropy=entropy(name),
        )
        for number, name in enumerate(terms.clients)
    }
    server, step = Server(terms), 0
    outgoing = server.invite()
    while outgoing:
        for name, message in outgoing.items():
            reply = members[name].answer(message)
            assert (message, reply) == said[name][step]
            server.receive(name, reply)
        outgoing, step = server.close(), step + 1
    assert step == 5


@pytest.mark.parametrize(
    ("protocol", "trips", "large"), [("papers", 5, 1), ("two-trips", 2, 1 << 16), ("two-trips", 2, 1)]
)
def test_the_same_request_gets_the_same_bytes_and_no_other_a_second_answer(
    protocol: str, trips: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.cohorts.memory.LARGE_REPLY", large)
    repeated: list[bool] = []

    def twice(message: Message, answer: Answer) -> Message:
        first, second = answer(message), answer(message)
        if payload_of(message.content, "server"):
            repeated.append(first.content.object_id == second.content.object_id)
        return second

    assert sums_of(play(make_grid(make_app([private_mod]), 4, twice), protocol=protocol)) == [4]
    assert repeated == [True] * 4 * trips


@PROTOCOLS
def test_training_runs_once_a_round_and_only_when_it_is_to_be_masked(protocol: str) -> None:
    calls: list[int] = []
    app = ClientApp(mods=[private_mod])
    inner = make_app()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        calls.append(context.node_id)
        assert set(message.content) == {"arrays", "config"}
        return inner(message, context)

    play(make_grid(app, 4), rounds=2, protocol=protocol)
    assert sorted(calls) == sorted([100, 101, 102, 103] * 2)


def test_a_plain_message_is_refused() -> None:
    grid = make_grid(make_app([private_mod]), 1)
    for kind in "train", "evaluate":
        plain = Message(RecordDict({"arrays": initial_arrays()}), 100, kind)
        reply = grid.nodes[100].answer(plain)
        assert reply.error.code == 6
        assert reply.error.reason == "plain"


def test_an_operator_may_allow_evaluation_of_the_node_alone() -> None:
    grid = make_grid(make_app([private_mod]), 1, config={"coterie-allow": "evaluate"})
    reply = grid.nodes[100].answer(Message(RecordDict({"arrays": initial_arrays()}), 100, "evaluate"))
    assert reply.content.metric_records["metrics"]["accuracy"] == 0
    assert grid.nodes[100].answer(Message(RecordDict({"arrays": initial_arrays()}), 100, "train")).has_error()


def keeping(replies: list[Message]) -> Callable[[Message, Answer], Message]:
    """Deliver every message, and keep the replies."""

    def listen(message: Message, answer: Answer) -> Message:
        replies.append(answer(message))
        return replies[-1]

    return listen


@pytest.mark.parametrize("failure", [ValueError("patient 17 has diabetes"), MemoryError("patient 17")])
def test_errors_of_training_stay_on_the_node(failure: Exception) -> None:
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise failure

    replies: list[Message] = []
    assert sums_of(play(make_grid(app, 4, keeping(replies)))) == [0]
    errors = [reply.error for reply in replies if reply.has_error()]
    assert errors
    assert {(error.code, error.reason) for error in errors} == {(6, "app")}


@PROTOCOLS
def test_a_full_disk_is_reported_as_a_problem_of_the_nodes_folder(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    def full_folder(_path: Path, _content: bytes, *, until: float) -> None:
        raise ConfigError("cannot write 7: No space left on device")

    def full_database(*_: object) -> None:
        raise sqlite3.OperationalError("No space left on device")

    monkeypatch.setattr("coterie.deployment.sessions.write_secret", full_folder)
    monkeypatch.setattr("coterie.cohorts.prekey_tables.contribute", full_database)
    replies: list[Message] = []
    play(make_grid(make_app([private_mod]), 4, keeping(replies)), protocol=protocol)
    assert {reply.error.reason for reply in replies if reply.has_error()} == {Reason.SETTINGS}
    assert "No space left on device" in caplog.text


def test_damaged_messages_of_a_server_get_one_of_the_known_reasons() -> None:
    grid = make_grid(make_app([private_mod]), 4)
    play(grid)
    for message in [sent for sent in grid.sent if payload_of(sent.content, "server")]:
        for cut in (0, 1, 7, 40):
            payload = payload_of(message.content, "server")
            broken = pack(payload[:cut] + b"\x00" + payload[cut + 1 :], dict(header_of(message.content) or {}))
            reply = grid.nodes[message.metadata.dst_node_id].answer(
                Message(broken, message.metadata.dst_node_id, "train")
            )
            assert reply.error.reason in set(Reason)


def states(number: int) -> list[bytes | None]:
    """Return the states that a node keeps of its sessions, in either protocol."""
    node = Node(NodeSettings.read({"partition-id": number}))
    with node.session(7) as place:
        parked = place.read()
    with closing(sqlite3.connect(node.folder / "memory.sqlite")) as memory:
        contributed = memory.execute("SELECT state FROM contributions").fetchall()
    return [state for (state,) in contributed] + ([parked.state or None] if parked else [])


@PROTOCOLS
def test_secrets_of_a_session_are_gone_when_it_is_over(protocol: str) -> None:
    play(make_grid(make_app([private_mod]), 4), protocol=protocol)
    assert [states(number) for number in range(4)] == [[None]] * 4


@PROTOCOLS
def test_the_next_run_deletes_secrets_of_a_run_that_ended_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    def lose_masked(message: Message, answer: Answer) -> Message | None:
        reply = answer(message)
        return None if "arrays" in message.content else reply

    app = make_app([private_mod])
    play(make_grid(app, 4, lose_masked), protocol=protocol)
    assert all(states(number)[0] for number in range(4))
    later = time.time() + LEEWAY + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert sums_of(play(FakeGrid(make_grid(app, 4).nodes, run_id=8), protocol=protocol)) == [4]
    assert not any(any(states(number)) for number in range(4))


def test_concurrent_runs_do_not_touch_each_others_sessions() -> None:
    """A second run enters a session between the two trips of the first; both have a result."""
    app, inner = make_app([private_mod]), list[PrivateStrategy]()
    play(make_grid(app, 4))

    def meanwhile(message: Message, answer: Answer) -> Message:
        if not inner and is_book_message(payload_of(message.content, "server")):
            inner.append(PrivateStrategy(FedAvg(**QUIET), deadline=2, resume=False))
            inner[0].start(FakeGrid(make_grid(app, 4).nodes, run_id=8), initial_arrays(), 1, timeout=2)
            TaskIdentity.run_id = 7
        return answer(message)

    outer = play(make_grid(app, 4, meanwhile))
    for run in (outer, inner[0]):
        assert sums_of(run) == [4]
        assert len(results_of(run)[0].attendance.revealers) == 4


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (pack(b"", {"kind": HELLO}), "train"),
        (pack(b"x", {"kind": STEP}), "train"),
        (pack(b"x", {"kind": "what"}), "train"),
        (RecordDict({"arrays": initial_arrays()}), "train"),
        (RecordDict({"arrays": initial_arrays()}), "evaluate"),
    ],
    ids=["hello", "step", "unknown", "refused", "allowed"],
)
def test_any_message_deletes_expired_sessions(content: RecordDict, kind: str) -> None:
    settings = NodeSettings.read({"partition-id": 0})
    with Node(settings).session(7) as place:
        place.write(Parked(b"request", b"reply", b"secret"), time.time() - 1)
    grid = make_grid(make_app([private_mod]), 1, config={"coterie-allow": "evaluate"})
    grid.nodes[100].answer(Message(content, 100, kind))
    assert not (settings.sessions / "7").exists()


@PROTOCOLS
def test_the_time_of_a_step_counts_from_its_message(home: Path, protocol: str) -> None:
    left: list[float] = []

    def late(message: Message, answer: Answer) -> Message:
        message.metadata.created_at, message.metadata.ttl = time.time() - 86390, 86400.0
        reply = answer(message)
        file = home / "nodes" / "partition-0" / "sessions" / "7"
        left.extend([file.stat().st_mtime - time.time()] if file.exists() else [])
        with closing(sqlite3.connect(home / "nodes" / "partition-0" / "memory.sqlite")) as memory:
            left.extend(until - time.time() for (until,) in memory.execute("SELECT until FROM retention"))
        return reply

    play(make_grid(make_app([private_mod]), 2, late), protocol=protocol)
    assert left
    assert max(left) == pytest.approx(10 + LEEWAY, abs=5)


def test_the_mod_can_be_sent_to_another_process() -> None:
    assert isinstance(pickle.loads(pickle.dumps(private_mod)), PrivateMod)  # noqa: S301


def test_a_node_imports_nothing_heavy() -> None:
    heavy = ("torch", "scipy", "sqlalchemy", "sklearn", "matplotlib", "flwr.serverapp", "ray", "pydantic")
    program = (
        "import sys, flwr.clientapp, flwr.app; before = set(sys.modules)\n"
        "from coterie.transports.flower import private_mod\n"
        f"print([name for name in {heavy!r} if name in sys.modules and name not in before])"
    )
    assert printed_by(program) == "[]\n"
