"""Write the test vectors: complete transcripts of sessions, with all that another implementation needs to replay them.

Each file holds the terms, the inputs, the random bytes that every client drew (by the label of what it drew them for),
all messages, and messages that must be refused where they stand, with the error. A folder holds the vectors of one
version of the protocol.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.support.cast import Cast, entropy_for, flip, identity_for, make_terms, names
from tests.vectors import two_trips
from tests.vectors.recording import RecordedEntropy, refusals, rejections, write_terms

from coterie.crypto.context import PROTOCOL
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.secagg import Step, Terms, messages, steps

FOLDER = Path(__file__).parent / PROTOCOL.rpartition("/")[2]
ENTROPY = "coterie test vectors"

SESSIONS: dict[str, tuple[Terms, Mapping[Step, Sequence[str]]]] = {
    "complete": (make_terms(4, topology=Complete(), bits=16, length=3), {}),
    "complete-dropouts": (
        make_terms(6, topology=Complete(), bits=20, length=5, threshold=3),
        {Step.SHARE: names(6)[:1], Step.MASK: names(6)[3:4], Step.REVEAL: names(6)[5:]},
    ),
    "erdos-renyi": (make_terms(7, topology=ErdosRenyi(0.8), bits=32, length=2), {Step.MASK: names(7)[2:3]}),
    "harary-circles": (
        make_terms(8, topology=Harary(6), bits=33, length=4, circles=(0, 0, 1, 1, 2, 2, 3, 3)),
        {Step.MASK: names(8)[6:7]},
    ),
    "active-server": (
        make_terms(5, topology=Harary(4), bits=24, length=3, active=True, colluders=1),
        {Step.MASK: names(5)[4:]},
    ),
    "active-server-circles": (
        make_terms(7, bits=16, length=2, active=True, circles=(0, 0, 0, 1, 1, 1, 2), content=b"a model"),
        {Step.MASK: names(7)[6:], Step.CONFIRM: names(7)[:1]},
    ),
}


def transcript(terms: Terms, dropouts: Mapping[Step, Sequence[str]]) -> dict[str, Any]:
    """Play one session and write down everything that passes between the parties."""
    recorded = {name: RecordedEntropy(entropy_for(name, ENTROPY.encode())) for name in terms.clients}
    cast = Cast(terms, entropy=recorded)
    played = list(_steps(cast, dropouts))
    return {
        "protocol": PROTOCOL,
        "terms": write_terms(terms),
        "terms_digest": terms.digest.hex(),
        "identity_secrets": {name: identity_for(name).secret().hex() for name in terms.clients} if terms.active else {},
        "entropy": {name: entropy.drawn for name, entropy in recorded.items()},
        "inputs": {name: vector.tolist() for name, vector in cast.inputs.items()},
        "dropouts": {step.value: list(clients) for step, clients in dropouts.items()},
        "graph_seed": cast.server.view().seed.hex(),
        "steps": played,
        "aggregated": list(cast.server.aggregated),
        "sum": cast.unmask().total.tolist(),
    }


def _steps(cast: Cast, dropouts: Mapping[Step, Sequence[str]]) -> Iterator[dict[str, Any]]:
    while True:
        step = cast.server.step
        speaking = [name for name in cast.inbox if name not in dropouts.get(step, ())]
        refused = [] if step is Step.ADVERTISE else list(_refused(cast, speaking[0]))
        replies = cast.replies(speaking)
        rejected = list(_rejected(cast, speaking[0], replies[speaking[0]]))
        cast.deliver(replies)
        record = {
            "step": step.value,
            "refused_downloads": refused,
            "rejected_uploads": rejected,
            "uploads": {name: message.hex() for name, message in replies.items()},
        }
        if step is Step.REVEAL:
            yield record
            return
        cast.inbox = cast.server.close()
        yield record | {"downloads": {name: message.hex() for name, message in cast.inbox.items()}}


def _refused(cast: Cast, name: str) -> Iterator[dict[str, str]]:
    """Messages that one client refuses in this step, and why; it can still answer the right one afterwards."""
    position = list(steps.TABLE).index(steps.ROWS[cast.server.step]) - 1
    if steps.TABLE[position].active_only and not cast.terms.active:
        position -= 1
    kind = steps.TABLE[position].download
    assert kind is not None
    good = messages.decode(cast.inbox[name], kind, "server", cast.terms.digest)
    cases = _spoiled(cast.inbox[name], good) | _lies(cast, good)
    return refusals(cases, name, lambda message: cast.answer(cast.states[name], name, message))


def _rejected(cast: Cast, name: str, reply: bytes) -> Iterator[dict[str, str]]:
    """Messages that the server rejects in this step, and why."""
    good = messages.decode(reply, steps.ROWS[cast.server.step].upload, name, cast.terms.digest)
    cases = _spoiled(reply, good)
    cases["another sender's"] = messages.encode(msgspec.structs.replace(good, sender=good.sender + 1))
    if getattr(good, "signature", None):
        cases["badly signed"] = messages.encode(msgspec.structs.replace(good, signature=bytes(64)))
    if getattr(good, "statement", None):
        cases["without a statement"] = messages.encode(msgspec.structs.replace(good, statement=None))
    return rejections(cases, name, cast.server.receive)


def _spoiled(data: bytes, good: messages.Message) -> dict[str, bytes]:
    return {
        "cut short": data[: len(data) // 2],
        "damaged": flip(data, 8 * (len(data) - 1)),
        "of another session": messages.encode(msgspec.structs.replace(good, terms=bytes(32))),
    }


def _lies(cast: Cast, good: messages.Message) -> dict[str, bytes]:
    """What a server that lies could send instead."""
    replace = msgspec.structs.replace
    lies: dict[str, messages.Message] = {}
    match good:
        case messages.KeyBook(advertisements=(first, second, *others)):
            copied = replace(second, masking_key=first.masking_key)
            lies["a key twice"] = replace(good, advertisements=(first, copied, *others))
            lies["out of order"] = replace(good, advertisements=(second, first, *others))
            if cast.terms.active:
                swapped = replace(first, masking_key=bytes(31) + b"\1")
                lies["a key that its owner did not sign"] = replace(good, advertisements=(swapped, second, *others))
        case messages.Deliveries():
            lies["nobody shared"] = replace(good, envelopes=())
        case messages.Announcement():
            lies["nobody survived"] = replace(good, survivors=bytes(len(good.survivors)))
            if cast.terms.active:
                lies["no statements"] = replace(good, statements=())
                lies["fewer masks than were signed"] = replace(good, sharers=good.survivors)
        case messages.Testimony():
            lies["no quorum"] = replace(good, confirmations=good.confirmations[:1])
    return {case: messages.encode(message) for case, message in lies.items() if message != good}


def main() -> None:
    """Write one file for each session."""
    FOLDER.mkdir(exist_ok=True)
    transcripts = {name: transcript(*session) for name, session in SESSIONS.items()}
    transcripts |= {name: two_trips.transcript(*session) for name, session in two_trips.SESSIONS.items()}
    for name, written in transcripts.items():
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(written, indent=1) + "\n")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
