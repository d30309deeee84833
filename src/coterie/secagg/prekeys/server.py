"""The server of the two-trip protocol: used exactly like :class:`coterie.secagg.server.Server`.

    server = PrekeyServer(book)
    outgoing = server.invite()
    while outgoing:
        send it; server.receive(sender, message) for whatever arrives
        outgoing = server.close()
    server.aggregate

``confirm`` is left out where few enough clients were lost. Fresh prekeys that came with contributions are in
:attr:`PrekeyServer.refills`.
"""

from collections.abc import Collection
from types import MappingProxyType

import msgspec

from coterie.arithmetic.ring import RingVector
from coterie.crypto import signing
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import OVERHEAD_BYTES
from coterie.errors import InputError, LocalProtocolError, PeerProtocolError, ThresholdError, VerificationError
from coterie.secagg import messages as wire
from coterie.secagg.masking import Map
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import (
    SHARE_BYTES,
    MaskedContribution,
    OpenedShares,
    Prekey,
    SealedShares,
    SurvivorList,
    SurvivorProof,
    SurvivorSignature,
)
from coterie.secagg.prekeys.steps import ROWS
from coterie.secagg.prekeys.unmasking import PrekeyView, remove_masks
from coterie.secagg.server import Aggregate, Rejected
from coterie.secagg.steps import Step


class PrekeyServer:
    """One two-trip session, seen from the server."""

    def __init__(self, book: PrekeyBook, parallel: Map | None = None) -> None:
        self.book = book
        self.terms = book.terms
        self.step = Step.CONTRIBUTE
        self.rejected: list[Rejected] = []
        self.refills: dict[str, tuple[Prekey, ...]] = {}
        """Fresh prekeys by client; whoever stores them checks their signatures."""
        self._parallel = parallel
        self._contributions: dict[int, MaskedContribution] = {}
        self._sums: dict[int, RingVector] = {}
        self._aggregated: frozenset[int] = frozenset()
        self._signatures: dict[int, bytes] = {}
        self._asked: frozenset[int] = frozenset()
        self._shares: dict[int, dict[int, dict[int, bytes]]] = {}
        self._revealers: set[int] = set()
        self._aggregate: Aggregate | None = None

    def __repr__(self) -> str:
        return f"<PrekeyServer of session {self.terms.session.hex()[:8]}, step {self.step}>"

    @property
    def survivors(self) -> tuple[str, ...]:
        """Clients whose contribution arrived."""
        return self._names(self._contributions)

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Clients whose sum is about to be revealed; known, and final, once the contributions are closed."""
        return self._names(self._aggregated)

    @property
    def revealers(self) -> tuple[str, ...]:
        """Clients whose shares of others' secrets arrived."""
        return self._names(self._revealers)

    # Whoever contributed has advertised and shared as well: one message holds all of it.
    advertisers = sharers = survivors

    @property
    def aggregate(self) -> Aggregate:
        """The sum; known once the last step is closed."""
        if self._aggregate is None:
            raise LocalProtocolError(f"there is no sum in step {self.step}")
        return self._aggregate

    def view(self) -> PrekeyView:
        """Everything this server holds, to be read and not changed."""
        return PrekeyView(
            self.book,
            MappingProxyType(self._contributions),
            MappingProxyType(self._sums),
            self._aggregated,
            MappingProxyType(self._signatures),
            MappingProxyType(self._shares),
        )

    def invite(self) -> dict[str, bytes]:
        """Return what to send to every client to begin with: terms and prekeys."""
        return dict.fromkeys(self.terms.clients, self.book.invitation())

    def receive(self, sender: str, data: bytes) -> Rejected | None:
        """Take in one message of the current step from an authenticated sender; never raises on bad input."""
        try:
            self._receive(sender, data)
        except (PeerProtocolError, VerificationError, InputError) as error:
            reason = error.reason if isinstance(error, PeerProtocolError) else str(error)
            self.rejected.append(Rejected(sender, self.step, reason))
            return self.rejected[-1]
        return None

    def close(self) -> dict[str, bytes]:
        """End the current step and return what to send to whom; raise if the session cannot go on."""
        match self.step:
            case Step.CONTRIBUTE:
                outgoing = self._close_contributions()
            case Step.CONFIRM:
                outgoing = self._close_signatures()
            case Step.REVEAL:
                outgoing = {}
                total = remove_masks(self.view(), self._parallel)
                self._aggregate = Aggregate(total, self.aggregated)
                self.step = Step.DONE
            case _:
                raise LocalProtocolError("the session is over: there is nothing to close")
        return {self.terms.clients[client]: wire.encode(message) for client, message in outgoing.items()}

    def _receive(self, sender: str, data: bytes) -> None:
        client = self.terms.index.get(sender)
        if client is None:
            raise PeerProtocolError(sender, "is not in the terms")
        if self.step is Step.DONE:
            raise PeerProtocolError(sender, "sent a message after the session ended")
        expected, heard = self._present()
        if client not in expected:
            raise PeerProtocolError(sender, f"takes no part in step {self.step}")
        if client in heard:
            raise PeerProtocolError(sender, f"was already heard in step {self.step}")
        message = wire.decode(data, ROWS[self.step].upload, sender, self.book.digest)
        wire.check_sender(message, client, sender)
        match message:
            case MaskedContribution():
                self._take_contribution(client, message)
            case SurvivorSignature():
                self._take_signature(client, message.signature)
            case OpenedShares():
                self._take_shares(client, message)

    def _present(self) -> tuple[Collection[int], Collection[int]]:
        """Return who takes part in the current step, and who was heard in it."""
        if self.step is Step.CONTRIBUTE:
            return range(len(self.terms.clients)), self._contributions
        return self._asked, self._signatures if self.step is Step.CONFIRM else self._revealers

    # Trip 1.

    def _take_contribution(self, client: int, made: MaskedContribution) -> None:
        book, name = self.book, self.terms.clients[client]
        sealed = SHARE_BYTES * len(book.circles) + OVERHEAD_BYTES
        foreign = book.foreign_circles(client)
        if [len(envelope) for envelope in made.envelopes] != [sealed] * len(book.others(client)):
            raise PeerProtocolError(name, "did not deal shares to exactly the others")
        if len(made.pads) != SEED_BYTES * sum(len(book.circles[circle]) for circle in foreign):
            raise PeerProtocolError(name, "did not hide exactly the masks it shares with other circles")
        if len(made.key_marks) != len(foreign):
            raise PeerProtocolError(name, "did not commit to one key for each other circle")
        vector = self.terms.ring.unpack(made.payload, self.terms.length)
        if self.terms.active:
            if made.signature is None:
                raise VerificationError("a contribution is not signed")
            body = msgspec.msgpack.encode(msgspec.structs.replace(made, signature=None, prekeys=()))
            context = rules.contribution_context(book.digest, client, made.seed_mark, body)
            signing.verify(self.terms.identities[client], made.signature, context)
        self.refills[name] = made.prekeys
        self._contributions[client] = msgspec.structs.replace(made, payload=b"", prekeys=())
        circle = self.terms.circle_of(client)
        if circle in self._sums:
            self._sums[circle] += vector
        else:
            self._sums[circle] = vector

    def _close_contributions(self) -> dict[int, wire.Message]:
        book, terms = self.book, self.terms
        self._aggregated = terms.aggregated(self._contributions)
        if len(self._aggregated) < terms.fewest:
            raise ThresholdError(f"{len(self._aggregated)} clients would be aggregated; the minimum is {terms.fewest}")
        self._asked = frozenset(self._contributions)
        if len(self._asked) < book.threshold:
            raise ThresholdError(
                f"only {len(self._asked)} of {len(terms.clients)} clients contributed; {book.threshold} are needed"
            )
        marks = self._marks()
        listed = SurvivorList(
            book.digest,
            wire.encode_members(marks, len(terms.clients)),
            b"".join(marks[client] for client in sorted(marks)),
        )
        if len(self._aggregated) < book.direct_floor:
            self.step = Step.CONFIRM
            return dict.fromkeys(self._asked, listed)
        self.step = Step.REVEAL
        return {
            client: msgspec.structs.replace(listed, envelopes=self._envelopes_for(client)) for client in self._asked
        }

    def _marks(self) -> dict[int, bytes]:
        return {client: made.seed_mark for client, made in self._contributions.items()}

    def _envelopes_for(self, holder: int) -> tuple[SealedShares, ...]:
        """Return what the aggregated dealers sealed for one holder."""
        return tuple(
            SealedShares(dealer, self._contributions[dealer].envelopes[holder - (holder > dealer)])
            for dealer in sorted(self._aggregated - {holder})
        )

    # Trip 2, where many were lost.

    def _take_signature(self, client: int, signature: bytes) -> None:
        signing.verify(self.terms.identities[client], signature, rules.survivors_context(self.book, self._marks()))
        self._signatures[client] = signature

    def _close_signatures(self) -> dict[int, wire.Message]:
        if len(self._signatures) < self.terms.quorum:
            raise ThresholdError(
                f"{len(self._signatures)} clients confirmed the survivors; {self.terms.quorum} are needed"
            )
        self.step = Step.REVEAL
        self._asked = frozenset(self._signatures)
        signatures = tuple(
            SurvivorSignature(self.book.digest, client, self._signatures[client]) for client in sorted(self._signatures)
        )
        return {
            client: SurvivorProof(self.book.digest, signatures, self._envelopes_for(client)) for client in self._asked
        }

    # The last trip.

    def _take_shares(self, holder: int, opened: OpenedShares) -> None:
        book, name = self.book, self.terms.clients[holder]
        wire.check_order([entry.dealer for entry in opened.dealers], name)
        for entry in opened.dealers:
            if entry.dealer not in self._aggregated:
                raise PeerProtocolError(name, f"revealed shares of client {entry.dealer}, who is not aggregated")
            places = rules.opened_secrets(book, entry.dealer, self._aggregated)
            if len(entry.shares) != SHARE_BYTES * len(places):
                raise PeerProtocolError(name, f"revealed other shares of client {entry.dealer} than were asked for")
        if opened.signature is not None and self.terms.active:
            self._take_signature(holder, opened.signature)
        for entry in opened.dealers:
            secrets = self._shares.setdefault(entry.dealer, {})
            for at, place in enumerate(rules.opened_secrets(book, entry.dealer, self._aggregated)):
                secrets.setdefault(place, {})[holder] = entry.shares[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]
        self._revealers.add(holder)

    def _names(self, clients: Collection[int]) -> tuple[str, ...]:
        return tuple(self.terms.clients[client] for client in sorted(clients))
