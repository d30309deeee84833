"""Test vectors of the two-trip protocol: transcripts of sessions, and messages that must be refused where they stand.

Each file holds the terms, the secret and the public part of every client's prekey, the inputs, the random bytes that
each client drew, all messages, and bad ones with their errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from tests.support.cast import entropy_for, flip, make_terms, names
from tests.support.prekey_cast import ISSUED, POPULATION, PrekeyCast
from tests.vectors.recording import RecordedEntropy, refusals, rejections, write_terms

from coterie.crypto.context import FINGERPRINT_BYTES, PROTOCOL
from coterie.secagg import Step, Terms, messages
from coterie.secagg.prekeys import PrekeyBook, accept, client
from coterie.secagg.prekeys.messages import MaskedContribution, OpenedShares, SurvivorList, SurvivorProof
from coterie.secagg.prekeys.steps import ROWS

PAIRS = tuple(number // 2 for number in range(10))

SESSIONS: dict[str, tuple[Terms, Mapping[Step, Sequence[str]]]] = {
    "two-trips-curious": (make_terms(5, bits=16, length=3), {Step.CONTRIBUTE: names(5)[4:]}),
    "two-trips-direct": (
        make_terms(10, bits=20, length=3, active=True, colluders=1, circles=PAIRS, content=b"a model"),
        {Step.CONTRIBUTE: names(10)[3:4], Step.REVEAL: names(10)[9:]},
    ),
    "two-trips-confirmed": (
        make_terms(10, bits=24, length=2, active=True, colluders=1, circles=PAIRS),
        {Step.CONTRIBUTE: (names(10)[1], names(10)[4], names(10)[7]), Step.CONFIRM: names(10)[9:]},
    ),
}


def transcript(terms: Terms, dropouts: Mapping[Step, Sequence[str]]) -> dict[str, Any]:
    """Play one session and write down everything that passes between the parties."""
    recorded = {name: RecordedEntropy(entropy_for(name, b"coterie test vectors")) for name in terms.clients}
    cast = PrekeyCast(terms, entropy=recorded)
    refused = list(_refused_books(cast))
    played = list(_steps(cast, dropouts))
    return {
        "protocol": PROTOCOL,
        "terms": write_terms(terms),
        "population": POPULATION.hex(),
        "issued": ISSUED,
        "identity_secrets": {name: identity.secret().hex() for name, identity in cast.identities.items()},
        "prekey_secrets": {name: secret.hex() for name, secret in cast.secrets.items()},
        "entropy": {name: entropy.drawn for name, entropy in recorded.items()},
        "inputs": {name: vector.tolist() for name, vector in cast.inputs.items()},
        "dropouts": {step.value: list(clients) for step, clients in dropouts.items()},
        "book_digest": cast.book.digest.hex(),
        "invitation": cast.book.invitation().hex(),
        "refused_invitations": refused,
        "steps": played,
        "aggregated": list(cast.server.aggregated),
        "sum": cast.server.aggregate.total.tolist(),
    }


def _refused_books(cast: PrekeyCast) -> Iterator[dict[str, str]]:
    """Invitations whose book one client refuses, and why."""
    name, good, terms = cast.terms.clients[0], cast.book.invitation(), cast.terms
    replace, prekeys = msgspec.structs.replace, cast.book.prekeys
    cases = {
        "cut short": good[: len(good) // 2],
        "damaged": flip(good, 8 * (len(good) - 1)),
        "another prekey of its own": PrekeyBook(terms, (prekeys[1], prekeys[0], *prekeys[2:])).invitation(),
        "a prekey twice": PrekeyBook(terms, (*prekeys[:-1], prekeys[1])).invitation(),
        "a key of low order": PrekeyBook(terms, (*prekeys[:-1], replace(prekeys[-1], key=bytes(32)))).invitation(),
    }
    if terms.active:
        low = replace(terms, threshold=terms.quorum - 1)
        cases["fewer shares than a quorum"] = PrekeyBook(low, prekeys).invitation()
        redated = replace(prekeys[-1], issued=ISSUED + 1)
        cases["a prekey that its owner did not sign"] = PrekeyBook(terms, (*prekeys[:-1], redated)).invitation()
    secret = cast.secrets[name]
    return refusals(cases, name, lambda message: accept(PrekeyBook.read(message), name, secret, POPULATION))


def _steps(cast: PrekeyCast, dropouts: Mapping[Step, Sequence[str]]) -> Iterator[dict[str, Any]]:
    inbox, before, gone = cast.server.invite(), Step.DONE, set[str]()
    while inbox:
        step = cast.server.step
        gone.update(dropouts.get(step, ()))
        speaking = [name for name in inbox if name not in gone]
        first = speaking[0]
        kind = SurvivorProof if before is Step.CONFIRM else SurvivorList
        refused = [] if step is Step.CONTRIBUTE else list(_refused(cast, first, inbox[first], kind))
        replies = {
            name: cast.contribute(name) if step is Step.CONTRIBUTE else cast.answer(name, inbox[name])
            for name in speaking
        }
        rejected = list(_rejected(cast, first, replies[first]))
        for name, reply in replies.items():
            assert cast.server.receive(name, reply) is None
        inbox, before = cast.server.close(), step
        yield {
            "step": step.value,
            "refused_downloads": refused,
            "rejected_uploads": rejected,
            "uploads": {name: message.hex() for name, message in replies.items()},
            "downloads": {name: message.hex() for name, message in inbox.items()},
        }


def _refused(
    cast: PrekeyCast, name: str, data: bytes, kind: type[SurvivorList | SurvivorProof]
) -> Iterator[dict[str, str]]:
    """Messages that one client refuses in this step, and why; it can still answer the right one afterwards."""
    good = messages.decode(data, kind, "server", cast.book.digest)
    replace = msgspec.structs.replace
    lies: dict[str, messages.Message] = {"of another session": replace(good, terms=bytes(32))}
    match good:
        case SurvivorList():
            lies["nobody survived"] = replace(good, survivors=bytes(len(good.survivors)), marks=b"")
            lies["another contribution of this client"] = replace(
                good, marks=bytes(FINGERPRINT_BYTES) + good.marks[FINGERPRINT_BYTES:]
            )
            lies["marks of fewer clients"] = replace(good, marks=good.marks[FINGERPRINT_BYTES:])
            if good.envelopes is None:
                lies["reveal at once, with so many lost"] = replace(good, envelopes=())
            else:
                lies["an envelope of its own"] = replace(
                    good, envelopes=(replace(good.envelopes[0], dealer=0), *good.envelopes)
                )
                if not cast.terms.active:
                    lies["confirm, which nobody does in this mode"] = replace(good, envelopes=None)
        case SurvivorProof():
            lies["no quorum"] = replace(good, signatures=good.signatures[:1])
            forged = replace(good.signatures[0], signature=bytes(64))
            lies["a forged signature"] = replace(good, signatures=(forged, *good.signatures[1:]))
            lies["one signature twice"] = replace(good, signatures=(good.signatures[0], *good.signatures))
    cases = {"cut short": data[: len(data) // 2], "damaged": flip(data, 8 * (len(data) - 1))}
    cases |= {case: messages.encode(message) for case, message in lies.items()}
    state, identity = cast.states[name], cast.identities.get(name)
    return refusals(cases, name, lambda message: client.answer(state, message, identity))


def _rejected(cast: PrekeyCast, name: str, reply: bytes) -> Iterator[dict[str, str]]:
    """Messages that the server rejects in this step, and why."""
    good = messages.decode(reply, ROWS[cast.server.step].upload, name, cast.book.digest)
    replace = msgspec.structs.replace
    bad: dict[str, messages.Message] = {
        "of another session": replace(good, terms=bytes(32)),
        "another sender's": replace(good, sender=good.sender + 1),
    }
    match good:
        case MaskedContribution():
            bad["shares for fewer than all"] = replace(good, envelopes=good.envelopes[1:])
            bad["hidden masks cut short"] = replace(good, pads=good.pads[1:])
            bad["fewer commitments"] = replace(good, key_marks=good.key_marks[1:])
            if cast.terms.active:
                bad["another vector than was signed"] = replace(good, payload=bytes(len(good.payload)))
                bad["not signed"] = replace(good, signature=None)
        case OpenedShares():
            first = good.dealers[0]
            bad["fewer shares than were asked for"] = replace(
                good, dealers=(replace(first, shares=first.shares[2:]), *good.dealers[1:])
            )
            bad["a dealer twice"] = replace(good, dealers=(first, *good.dealers))
        case _:
            bad["badly signed"] = replace(good, signature=bytes(64))
    cases = {"cut short": reply[: len(reply) // 2], "damaged": flip(reply, 8 * (len(reply) - 1))}
    cases |= {case: messages.encode(message) for case, message in bad.items()}
    return rejections(cases, name, cast.server.receive)
