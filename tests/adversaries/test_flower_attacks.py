"""Attacks on clients by whoever runs the Flower server: each succeeds with its defence off and fails with it on."""

import io
import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import Answer, FakeGrid, FakeNode, initial_arrays, make_app, make_grid
from tests.support.flower import identity as identity
from tests.support.homes import home as home

from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Client
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.deployment import responder
from coterie.deployment.credentials import introduce
from coterie.deployment.engine import STEP, Arrays
from coterie.deployment.node import NodeSettings
from coterie.deployment.roster_folder import RosterFolder
from coterie.errors import PeerProtocolError
from coterie.rounds import member
from coterie.rounds.floor import Floor
from coterie.secagg import Terms, ThreatMode, messages
from coterie.secagg.prekeys import book
from coterie.secagg.prekeys.messages import BookInvitation
from coterie.transports.flower import PrivateStrategy, private_mod
from coterie.transports.flower.records import header_of, pack, payload_of, without_ours

VICTIM = 102


def play(grid: FakeGrid, rounds: int = 1, **settings: Any) -> PrivateStrategy:  # noqa: ANN401
    kept = PrivateStrategy(FedAvg(fraction_evaluate=0.0), deadline=1, empty_rounds=0, **settings)
    kept.start(grid, initial_arrays(), rounds, timeout=1)
    return kept


def value_of(kept: PrivateStrategy) -> Arrays | None:
    assert kept.grid is not None
    value = kept.grid.results[-1].value
    return value[0] if value else None


def singled_out(message: Message, answer: Answer) -> Message:
    """Give all nodes but the victim a model with numbers so large that training does not change them."""
    if not message.content.array_records.get("arrays") or message.metadata.dst_node_id == VICTIM:
        return answer(message)
    crafted = RecordDict(dict(message.content.items()))
    crafted["arrays"] = ArrayRecord(
        {
            name: Array(np.asarray(np.full_like(array.numpy(), 2.0**30, dtype=np.float32)))
            for name, array in message.content.array_records["arrays"].items()
        }
    )
    return answer(_changed(message, crafted))


def _changed(message: Message, content: RecordDict, message_type: str = "") -> Message:
    about = message.metadata
    copy = Message(content, about.dst_node_id, message_type or about.message_type, group_id=about.group_id)
    copy.metadata.__dict__["_message_id"] = message.metadata.message_id
    return copy


def test_different_models_for_different_clients_show_the_victims_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pasquini et al. 2022: where others cannot move, the sum is the victim's own update."""
    assert value_of(play(make_grid(make_app([private_mod]), 4, singled_out))) is None

    # With the defence off, no client compares what it received with the terms of the session.
    monkeypatch.setattr(responder, "content_digest", lambda *_: _Anything())
    leaked = value_of(play(make_grid(make_app([private_mod]), 4, singled_out)))
    assert leaked is not None
    mean_change = leaked["w"] - initial_arrays()["w"].numpy()
    weights = {100: 10, 101: 20, 102: 30, 103: 40}
    assert np.allclose(mean_change * sum(weights.values()) / weights[VICTIM], 0.03, atol=2e-3)


class _Anything(bytes):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def another_rate(message: Message, answer: Answer) -> Message:
    """Give the victim another learning rate, with which its update would dominate the sum."""
    if not message.content.array_records.get("arrays") or message.metadata.dst_node_id != VICTIM:
        return answer(message)
    crafted = RecordDict(dict(message.content.items()))
    crafted["config"] = ConfigRecord({**message.content.config_records["config"], "lr": 1000.0})
    return answer(_changed(message, crafted))


def asked_for_nothing(message: Message, answer: Answer) -> Message:
    """Call another function of the app on all nodes but the victim: one that does not change the model."""
    if not message.content.array_records.get("arrays") or message.metadata.dst_node_id == VICTIM:
        return answer(message)
    return answer(_changed(message, message.content, "train.warm_up"))


def test_different_functions_for_different_clients_show_the_victims_update(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app([private_mod])

    @app.train("warm_up")
    def warm_up(message: Message, context: Context) -> Message:
        del context
        reply = RecordDict({"arrays": message.content.array_records["arrays"]})
        reply["metrics"] = MetricRecord({"num-examples": 10})
        return Message(reply, reply_to=message)

    assert value_of(play(make_grid(app, 4, asked_for_nothing))) is None

    monkeypatch.setattr(responder, "content_digest", lambda *_: _Anything())
    leaked = value_of(play(make_grid(app, 4, asked_for_nothing)))
    assert leaked is not None
    mean_change = leaked["w"] - initial_arrays()["w"].numpy()
    assert np.allclose(mean_change * (10 + 10 + 30 + 10) / 30, 0.03, atol=2e-3)


@pytest.mark.parametrize("where", [{"_run_id": 99}, {"_group_id": "99"}])
def test_a_session_is_for_one_round_of_one_run(where: dict[str, Any]) -> None:
    """Another run may have another app, or an earlier version of this one."""

    def moved(message: Message, answer: Answer) -> Message:
        if message.metadata.dst_node_id == VICTIM and payload_of(message.content, "server"):
            message.metadata.__dict__.update(where)
        return answer(message)

    kept = play(make_grid(make_app([private_mod]), 6, moved))
    assert kept.grid is not None
    assert "partition-2" not in kept.grid.results[-1].attendance.survivors


def test_the_victim_refuses_a_configuration_for_it_alone() -> None:
    kept = play(make_grid(make_app([private_mod]), 6, another_rate))
    assert kept.grid is not None
    assert "partition-2" not in kept.grid.results[-1].attendance.survivors


def test_the_victim_refuses_a_run_configuration_for_it_alone() -> None:
    grid = make_grid(make_app([private_mod]), 6)
    grid.nodes[VICTIM].run_config["lr"] = 1000.0
    kept = play(grid)
    assert kept.grid is not None
    assert "partition-2" not in kept.grid.results[-1].attendance.survivors


def test_a_plain_request_for_the_model_succeeds_only_without_the_mod() -> None:
    plain = Message(RecordDict({"arrays": initial_arrays(), "config": ConfigRecord()}), VICTIM, "train")
    unprotected = FakeNode(make_app(), {"partition-id": 2}).answer(plain)
    assert unprotected.content.array_records
    assert FakeNode(make_app([private_mod]), {"partition-id": 2}).answer(plain).has_error()


def test_a_weaker_session_is_refused_by_a_node_that_did_not_agree_to_it() -> None:
    weak: dict[str, Any] = {"mode": "honest-but-curious"}
    assert value_of(play(make_grid(make_app([private_mod]), 4), **weak)) is None
    agreed = make_grid(make_app([private_mod]), 4, config={"coterie-mode": "honest-but-curious"})
    assert value_of(play(agreed, **weak)) is not None


def test_a_node_that_requires_circles_refuses_a_run_without_them() -> None:
    assert value_of(play(make_grid(make_app([private_mod]), 4), privacy=1)) is None


def test_a_limit_on_examples_does_not_reveal_which_nodes_have_more() -> None:
    """Lowered step by step, it would name each node's number by the limit at which that node drops out."""
    kept = play(make_grid(make_app([private_mod]), 4), most_examples=15)
    assert kept.grid is not None
    result = kept.grid.results[-1]
    assert len(result.attendance.survivors) == 4
    assert result.value is not None
    assert result.value[1]["num-examples"] == 10 + 15 + 15 + 15


def test_a_roster_below_the_floor_is_not_remembered(home: Path) -> None:
    """The first roster is trusted permanently: a node that accepted one it cannot use would never take part again."""
    play(make_grid(make_app([private_mod]), 4), privacy=1)
    shutil.rmtree(home / "server")
    assert value_of(play(make_grid(make_app([private_mod]), 4))) is not None


def test_no_setting_allows_plain_training() -> None:
    plain = Message(RecordDict({"arrays": initial_arrays(), "config": ConfigRecord()}), VICTIM, "train")
    node = FakeNode(make_app([private_mod]), {"partition-id": 2, "coterie-allow": "evaluate train"})
    assert node.answer(plain).has_error()


def test_a_run_cannot_lower_a_nodes_floor() -> None:
    grid = make_grid(make_app([private_mod]), 4)
    for node in grid.nodes.values():
        node.run_config.update({"coterie-mode": "honest-but-curious", "coterie-privacy": 1})
    assert value_of(play(grid, mode="honest-but-curious")) is None


@pytest.mark.parametrize("protocol", ["papers", "two-trips"])
def test_a_node_whose_sessions_were_restored_does_not_answer_again(home: Path, protocol: str) -> None:
    """Two answers from one state would reveal both kinds of share, or the difference of two inputs.

    In two trips the same invitation gets the same bytes again, whatever else is in the message.
    """
    second: list[bool] = []

    def restore(message: Message, answer: Answer) -> Message:
        folder = home / "nodes" / "partition-2" / "sessions"
        victim = message.metadata.dst_node_id == VICTIM
        if victim and message.content.array_records.get("arrays"):
            saved = home / "backup"
            if protocol == "two-trips":
                folder.mkdir(exist_ok=True)
            shutil.copytree(folder, saved, dirs_exist_ok=True)
            first = answer(message)
            shutil.copytree(saved, folder, dirs_exist_ok=True)
            other = pack(
                payload_of(message.content, "server"),
                {**dict(header_of(message.content) or {}), "again": 1},
                RecordDict({key: message.content[key] for key in ("arrays", "config")}),
            )
            again = answer(_changed(message, other))
            second.append(again.has_error() if protocol == "papers" else again.content == first.content)
            return first
        return answer(message)

    play(make_grid(make_app([private_mod]), 4, restore), protocol=protocol)
    assert second == [True]


def test_a_node_with_a_list_of_members_refuses_a_roster_of_unknown_clients(home: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec

    publics = []
    for number in range(4):
        key = ec.generate_private_key(ec.SECP384R1())
        (tmp_path / f"key-{number}").write_bytes(
            key.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
        )
        publics.append(key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH))

    def grid(members: int) -> FakeGrid:
        listed = tmp_path / f"members-{members}"
        listed.write_bytes(b"\n".join(publics[:members]))
        made = make_grid(make_app([private_mod]), 4, config={"coterie-members": str(listed)})
        for number, node in enumerate(made.nodes.values()):
            node.node_config["coterie-auth-key"] = str(tmp_path / f"key-{number}")
        return made

    assert value_of(play(grid(3))) is None  # the list lacks the key of partition-3
    assert value_of(play(grid(4))) is not None


def _npy(shape: tuple[int, ...]) -> bytes:
    with io.BytesIO() as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        return file.getvalue()


def _archive() -> bytes:
    with io.BytesIO() as file:
        np.savez(file, bytes=np.zeros(3, dtype=np.uint8))
        return file.getvalue()


GARBAGE = {
    "archive": _archive(),
    "broken archive": b"PK\x03\x04",
    "bomb": _npy((10**14,)),
    "less than nothing": _npy((-5,)),
    "broken header": b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16,
    "pickle": b"\x80\x04N.",
    "nothing": b"",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_from_a_node_is_blamed_on_that_node(data: bytes) -> None:
    sent = RecordDict({"coterie-payload": ArrayRecord({"bytes": Array("uint8", (3,), "numpy.ndarray", data)})})
    with pytest.raises(PeerProtocolError, match="eve"):
        payload_of(sent, "eve")


@pytest.mark.parametrize("hello", [True, False], ids=["hello", "step"])
def test_a_node_that_sends_garbage_does_not_end_the_run(hello: bool) -> None:
    def garbage(message: Message, answer: Answer) -> Message:
        if message.metadata.dst_node_id != VICTIM or hello == bool(payload_of(message.content, "server")):
            return answer(message)
        sent = ArrayRecord({"bytes": Array("uint8", (3,), "numpy.ndarray", GARBAGE["archive"])})
        return Message(RecordDict({"coterie": ConfigRecord(), "coterie-payload": sent}), reply_to=message)

    assert value_of(play(make_grid(make_app([private_mod]), 6, garbage))) is not None


@pytest.mark.parametrize("name", ["", "a\x1b[2J\nCoterie: all is well", "a" * 65])
def test_a_node_name_that_would_corrupt_a_roster_or_a_log_is_refused(name: str) -> None:
    grid = make_grid(make_app([private_mod]), 5)

    def named(message: Message, answer: Answer) -> Message:
        if message.metadata.dst_node_id != VICTIM or payload_of(message.content, "server"):
            return answer(message)
        key, about = Identity.generate(SystemEntropy()), message.metadata
        settings = NodeSettings(name, Path(), Floor())
        with MemoryFile(":memory:") as file:
            memory = file.of(Client(name, key.public))
            said = introduce(settings, key, run=about.run_id, node=VICTIM, run_config=b"", memory=memory)
        return Message(pack(msgspec.msgpack.encode(said), {}), reply_to=message)

    grid.deliver = named
    kept = play(grid)
    assert value_of(kept) is not None
    assert kept.grid is not None
    assert name not in kept.grid.results[-1].revealed


def test_one_key_under_two_names_is_one_node(tmp_path: Path) -> None:
    grid = make_grid(make_app([private_mod]), 5)
    for node in (VICTIM, 103):
        grid.nodes[node].node_config["coterie-folder"] = str(tmp_path)
    kept = play(grid)
    assert value_of(kept) is not None
    assert kept.grid is not None
    assert "partition-3" not in kept.grid.results[-1].revealed


INVITATIONS = {"papers": (3, 0), "two-trips": (4, 10)}
"""The number of fields and the tag of an invitation."""


def spellings(protocol: str) -> list[bytes]:
    """Return all encodings of the length and the tag of an invitation in msgpack, the usual one first."""
    fields, tag = INVITATIONS[protocol]
    arrays = [bytes([0x90 | fields]), b"\xdc" + fields.to_bytes(2, "big"), b"\xdd" + fields.to_bytes(4, "big")]
    unsigned = [bytes([0xCC + power]) + tag.to_bytes(1 << power, "big") for power in range(4)]
    signed = [bytes([0xD0 + power]) + tag.to_bytes(1 << power, "big") for power in range(4)]
    return [array + number for array in arrays for number in [bytes([tag]), *unsigned, *signed]]


def spelt(message: Message, begin: bytes) -> Message:
    """Return the same invitation with another encoding of its beginning."""
    body = begin + payload_of(message.content, "server")[2 : -messages.CHECKSUM_BYTES]
    header = dict(header_of(message.content) or {})
    return _changed(message, pack(body + messages.checksum(body), header, without_ours(message.content)))


def loosely(message: bytes) -> Terms:
    """Read an invitation in any encoding that msgpack accepts."""
    return Terms.from_bytes(messages.decode(message, messages.Invitation, "server", None).body)


def loosely_a_book(message: bytes) -> bool:
    """Return whether a message is an invitation to a session in two trips, in any encoding that msgpack accepts."""
    try:
        messages.decode(message, BookInvitation, "server", None)
    except PeerProtocolError:
        return False
    return True


def read_loosely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "read_invitation", loosely)
    for module in (member, book):
        monkeypatch.setattr(module, "is_book", loosely_a_book)


@pytest.mark.parametrize("protocol", list(INVITATIONS))
@pytest.mark.parametrize("loose", [False, True], ids=["", "also if it could be read"])
@pytest.mark.parametrize(
    "late", [{"coterie-roster": 64 * "0"}, {"coterie-members": "/nowhere"}], ids=["pin", "members"]
)
def test_an_invitation_encoded_in_another_way_is_checked_like_any_other(
    late: dict[str, str], loose: bool, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node trusts a roster, and its operator then sets a pin; it receives invitations in all encodings."""
    refused: list[bool] = []
    app, ways = make_app([private_mod]), spellings(protocol)
    assert value_of(play(make_grid(app, 4), protocol=protocol)) is not None
    if loose:
        read_loosely(monkeypatch)

    def invites(message: Message) -> bool:
        return payload_of(message.content, "server")[:2] == ways[0]

    def disguised(message: Message, answer: Answer) -> Message:
        if invites(message):
            refused.extend(answer(spelt(message, begin)).has_error() for begin in ways[1:])
        return answer(message)

    assert value_of(play(make_grid(app, 4, disguised, config=late), protocol=protocol)) is None
    assert refused == [True] * 26 * 4

    def forced(message: Message, answer: Answer) -> Message:
        return answer(spelt(message, ways[1]) if invites(message) else message)

    read_loosely(monkeypatch)
    monkeypatch.setattr(responder, "trust_rosters", lambda *_: None)
    assert value_of(play(make_grid(app, 4, forced, config=late), protocol=protocol)) is not None


def test_a_lying_server_writes_no_lines_into_a_nodes_log(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = make_grid(make_app([private_mod]), 4)
    play(grid)
    roster = RosterFolder(home / "server" / "rosters").latest
    assert roster is not None
    terms = Terms(
        session=b"s" * 16,
        clients=(*roster.names, "x\n\x1b[92mINFO\x1b[0m: Coterie: the reply of this node leaves masked\n#"),
        bits=32,
        length=3,
        circles=(0, 0, 1, 1, 1),
        mode=ThreatMode.ACTIVE_SERVER,
        identities=(*(client.identity for client in roster.clients), b"e" * 32),
        roster=roster.digest,
    )
    caplog.clear()
    invitation = messages.encode(messages.Invitation(terms.digest, terms.to_bytes()))
    assert grid.nodes[VICTIM].answer(Message(pack(invitation, {"kind": STEP}), VICTIM, "train")).has_error()
    (line,) = [record.getMessage() for record in caplog.records if "refuses" in record.getMessage()]
    assert "leaves masked" in line
    assert line.isprintable()
