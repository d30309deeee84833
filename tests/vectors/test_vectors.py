import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from tests.vectors import two_trips
from tests.vectors.generate import FOLDER, SESSIONS, transcript

from coterie.arithmetic.ring import RingVector
from coterie.crypto.context import PROTOCOL
from coterie.crypto.signing import Identity
from coterie.errors import CoterieError
from coterie.graphs.table import read_topology
from coterie.secagg import Server, Terms, client
from coterie.secagg.prekeys import PrekeyServer

State = TypeVar("State")


class ReplayedEntropy:
    """The bytes that a file says were drawn."""

    def __init__(self, drawn: Mapping[str, str]) -> None:
        self._drawn = dict(drawn)

    def draw(self, label: str, size: int) -> bytes:
        drawn = bytes.fromhex(self._drawn[label])
        assert len(drawn) == size
        return drawn


def load(name: str) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return vector


def read_terms(fields: Mapping[str, Any]) -> Terms:
    binary = {name: bytes.fromhex(fields[name]) for name in ("session", "roster", "content")}
    identities = [bytes.fromhex(key) for key in fields["identities"]]
    return msgspec.convert({**fields, **binary, "identities": identities}, Terms, dec_hook=read_topology)


def inputs_of(vector: Mapping[str, Any], terms: Terms) -> dict[str, RingVector]:
    return {name: np.array(numbers, terms.ring.dtype) for name, numbers in vector["inputs"].items()}


def replay(
    vector: Mapping[str, Any],
    server: Server | PrekeyServer,
    inbox: Mapping[str, bytes],
    states: dict[str, State],
    answer: Callable[[str, bytes], tuple[State, bytes]],
) -> None:
    """Play a recorded session; compare every message, every refusal and the sum with those of the file.

    What is refused in a step without downloads is the invitation.
    """
    for step in vector["steps"]:
        assert server.step == step["step"]
        for case in step["refused_downloads"] or vector.get("refused_invitations", ()):
            with pytest.raises(CoterieError) as caught:
                answer(case["client"], bytes.fromhex(case["message"]))
            assert (type(caught.value).__name__, str(caught.value)) == (case["error"], case["reason"])
        for case in step["rejected_uploads"]:
            rejected = server.receive(case["client"], bytes.fromhex(case["message"]))
            assert rejected is not None
            assert rejected.reason == case["reason"]
        for who, message in step["uploads"].items():
            states[who], reply = answer(who, inbox.get(who, b""))
            assert reply.hex() == message
            assert server.receive(who, reply) is None
        inbox = server.close()
        assert {who: message.hex() for who, message in inbox.items()} == step.get("downloads", {})
    assert server.aggregate.total.tolist() == vector["sum"]
    assert list(server.aggregate.clients) == vector["aggregated"]


@pytest.mark.parametrize("name", [*SESSIONS, *two_trips.SESSIONS])
def test_sessions_reproduce_their_transcripts(name: str) -> None:
    played = transcript(*SESSIONS[name]) if name in SESSIONS else two_trips.transcript(*two_trips.SESSIONS[name])
    assert json.loads(json.dumps(played)) == load(name)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_file_is_enough_to_replay_its_session(name: str) -> None:
    """Nothing but the file is used, as another implementation would: its entropy, its refusals, its messages."""
    vector = load(name)
    assert vector["protocol"] == PROTOCOL
    terms = read_terms(vector["terms"])
    assert terms.digest.hex() == vector["terms_digest"]
    inputs, server = inputs_of(vector, terms), Server(terms)
    secrets = vector["identity_secrets"]
    identities = {client_name: Identity(bytes.fromhex(secret)) for client_name, secret in secrets.items()}
    entropy = {client_name: ReplayedEntropy(drawn) for client_name, drawn in vector["entropy"].items()}
    states: dict[str, client.AnyState] = {}

    def answer(who: str, message: bytes) -> tuple[client.AnyState, bytes]:
        if who not in states:
            return client.join(terms, who, entropy[who], identities.get(who))
        return client.answer(
            states[who], message, entropy=entropy[who], vector=inputs[who], identity=identities.get(who)
        )

    replay(vector, server, {}, states, answer)


@pytest.mark.parametrize("name", [*SESSIONS, *two_trips.SESSIONS])
def test_the_recorded_sum_is_the_sum_of_the_recorded_inputs(name: str) -> None:
    vector = load(name)
    total = np.sum([np.array(vector["inputs"][client], dtype=object) for client in vector["aggregated"]], axis=0)
    assert vector["sum"] == (total % 2 ** vector["terms"]["bits"]).tolist()


def test_circles_are_whole_in_the_recorded_session() -> None:
    vector = load("harary-circles")
    assert vector["dropouts"]["mask"] == ["client-06"]
    assert vector["aggregated"] == [f"client-{number:02}" for number in range(6)]


def test_every_step_records_the_messages_to_refuse() -> None:
    for name in SESSIONS:
        first, *others = load(name)["steps"]
        assert not first["refused_downloads"]
        assert all(step["refused_downloads"] for step in others)
        assert all(step["rejected_uploads"] for step in (first, *others))


def test_the_folder_of_this_version_holds_these_sessions_alone() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(
        f"{name}.json" for name in (*SESSIONS, *two_trips.SESSIONS)
    )
