"""The recorded sessions of the two-trip protocol: reproduced, and replayed from their files alone."""

import json

import numpy as np
import pytest
from tests.vectors.test_vectors import ReplayedEntropy, inputs_of, load, read_terms
from tests.vectors.two_trips import SESSIONS, transcript

from coterie.crypto.context import PROTOCOL
from coterie.crypto.signing import Identity
from coterie.errors import CoterieError
from coterie.secagg import Step
from coterie.secagg.prekeys import PrekeyBook, PrekeyServer, accept, client


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_reproduce_their_transcripts(name: str) -> None:
    assert json.loads(json.dumps(transcript(*SESSIONS[name]))) == load(name)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_file_is_enough_to_replay_its_session(name: str) -> None:
    vector = load(name)
    assert vector["protocol"] == PROTOCOL
    terms, population = read_terms(vector["terms"]), bytes.fromhex(vector["population"])
    book = PrekeyBook.read(bytes.fromhex(vector["invitation"]))
    assert (book.terms, book.digest.hex()) == (terms, vector["book_digest"])
    inputs, server = inputs_of(vector, terms), PrekeyServer(book)
    identities = {who: Identity(bytes.fromhex(secret)) for who, secret in vector["identity_secrets"].items()}
    prekeys = {who: bytes.fromhex(secret) for who, secret in vector["prekey_secrets"].items()}
    entropy = {who: ReplayedEntropy(drawn) for who, drawn in vector["entropy"].items()}
    states: dict[str, client.AnyParked] = {}

    def answer(who: str, message: bytes) -> tuple[client.AnyParked, bytes]:
        if who in states:
            return client.answer(states[who], message, identities.get(who))
        invited = accept(PrekeyBook.read(message), who, prekeys[who], population)
        return invited.contribute(inputs[who], entropy[who], identities.get(who))

    inbox = server.invite()
    for step in vector["steps"]:
        assert server.step == step["step"]
        for case in step["refused_downloads"] or vector["refused_invitations"]:
            with pytest.raises(CoterieError) as caught:
                answer(case["client"], bytes.fromhex(case["message"]))
            assert (type(caught.value).__name__, str(caught.value)) == (case["error"], case["reason"])
        for case in step["rejected_uploads"]:
            rejected = server.receive(case["client"], bytes.fromhex(case["message"]))
            assert rejected is not None
            assert rejected.reason == case["reason"]
        for who, message in step["uploads"].items():
            states[who], reply = answer(who, inbox[who])
            assert reply.hex() == message
            assert server.receive(who, reply) is None
        inbox = server.close()
        assert {who: message.hex() for who, message in inbox.items()} == step["downloads"]
    assert server.aggregate.total.tolist() == vector["sum"]
    assert list(server.aggregate.clients) == vector["aggregated"]


@pytest.mark.parametrize("name", SESSIONS)
def test_the_recorded_sum_is_the_sum_of_the_recorded_inputs(name: str) -> None:
    vector = load(name)
    total = np.sum([np.array(vector["inputs"][who], dtype=object) for who in vector["aggregated"]], axis=0)
    assert vector["sum"] == (total % 2 ** vector["terms"]["bits"]).tolist()


def test_the_sessions_take_two_trips_and_three() -> None:
    steps = {name: [step["step"] for step in load(name)["steps"]] for name in SESSIONS}
    assert steps == {
        "two-trips-curious": [Step.CONTRIBUTE, Step.REVEAL],
        "two-trips-direct": [Step.CONTRIBUTE, Step.REVEAL],
        "two-trips-confirmed": [Step.CONTRIBUTE, Step.CONFIRM, Step.REVEAL],
    }


def test_every_step_records_what_must_be_refused() -> None:
    for name in SESSIONS:
        vector = load(name)
        assert vector["refused_invitations"]
        assert all(step["refused_downloads"] for step in vector["steps"][1:])
        assert all(step["rejected_uploads"] for step in vector["steps"])
