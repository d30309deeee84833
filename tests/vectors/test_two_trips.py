"""The recorded sessions of the two-trip protocol, replayed from their files alone."""

import pytest
from tests.vectors.test_vectors import ReplayedEntropy, inputs_of, load, read_terms, replay
from tests.vectors.two_trips import SESSIONS

from coterie.crypto.context import PROTOCOL
from coterie.crypto.signing import Identity
from coterie.secagg import Step
from coterie.secagg.prekeys import PrekeyBook, PrekeyServer, accept, client


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

    replay(vector, server, server.invite(), states, answer)


def test_the_sessions_take_two_trips_and_three() -> None:
    steps = {name: [step["step"] for step in load(name)["steps"]] for name in SESSIONS}
    assert steps == {
        "two-trips-curious": [Step.CONTRIBUTE, Step.REVEAL],
        "two-trips-direct": [Step.CONTRIBUTE, Step.REVEAL],
        "two-trips-confirmed": [Step.CONTRIBUTE, Step.CONFIRM, Step.REVEAL],
    }


def test_every_step_records_the_messages_to_refuse() -> None:
    for name in SESSIONS:
        vector = load(name)
        assert vector["refused_invitations"]
        assert all(step["refused_downloads"] for step in vector["steps"][1:])
        assert all(step["rejected_uploads"] for step in vector["steps"])
