"""The server of the two-trip protocol: used exactly like :class:`coterie.secagg.server.Server`.

    server = PrekeyServer(book)
    outgoing = server.invite()
    while outgoing:
        send it; server.receive(sender, message) for whatever arrives
        outgoing = server.close()
    server.aggregate

The step ``confirm`` is left out if few enough clients were lost. New prekeys that came with contributions are in
:attr:`PrekeyServer.refills`.
"""

from types import MappingProxyType

import msgspec

from coterie.crypto import signing
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import OVERHEAD_BYTES
from coterie.errors import PeerProtocolError, ThresholdError, VerificationError
from coterie.secagg import messages as wire
from coterie.secagg.base_server import BaseServer, Outgoing, Stage
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
from coterie.secagg.prekeys.recovery import recover_secrets
from coterie.secagg.prekeys.steps import ROWS
from coterie.secagg.prekeys.unmasking import PrekeyView, remove_masks
from coterie.secagg.steps import Step


class PrekeyServer(BaseServer):
    """One two-trip session, seen from the server."""

    recorded_before = frozenset({Step.CONFIRM, Step.REVEAL})

    def __init__(self, book: PrekeyBook, parallel: Map | None = None) -> None:
        super().__init__(book.terms, book.digest, Step.CONTRIBUTE, ROWS, parallel)
        self.book = book
        self.refills: dict[str, tuple[Prekey, ...]] = {}
        """New prekeys by client; their signatures are checked when they are stored."""
        self._contributions: dict[int, MaskedContribution] = {}
        self._signatures: dict[int, bytes] = {}
        self._asked: frozenset[int] = frozenset()
        self._opened: dict[int, tuple[int, ...]] = {}
        """Which secrets of each aggregated client are opened."""
        self._shares: dict[int, dict[int, dict[int, bytes]]] = {}
        everybody = range(len(book.terms.clients))
        self._stages = {
            Step.CONTRIBUTE: Stage(
                self._take_contribution, self._close_contributions, lambda: everybody, self._contributions
            ),
            Step.CONFIRM: Stage(self._take_signature, self._close_signatures, lambda: self._asked, self._signatures),
            Step.REVEAL: Stage(self._take_shares, self._close_shares, lambda: self._asked, self._revealers),
        }

    @property
    def survivors(self) -> tuple[str, ...]:
        """Clients whose contribution arrived."""
        return self._names(self._contributions)

    # A client that contributed has advertised and shared as well: one message holds all of it.
    advertisers = sharers = survivors

    def view(self) -> PrekeyView:
        """Everything that this server holds, read-only."""
        return PrekeyView(
            self.book,
            MappingProxyType(self._contributions),
            self._totals(),
            self._aggregated,
            MappingProxyType(self._signatures),
            frozenset(self._revealers),
            MappingProxyType(self._shares),
        )

    def invite(self) -> dict[str, bytes]:
        """Return the first message to every client: the terms and the prekeys."""
        return dict.fromkeys(self.terms.clients, self.book.invitation())

    def _following(self) -> Step:
        if self.step is Step.CONTRIBUTE:
            return Step.REVEAL if self._direct else Step.CONFIRM
        return Step.REVEAL if self.step is Step.CONFIRM else Step.DONE

    @property
    def _direct(self) -> bool:
        """Whether few enough were lost that clients reveal without signing first."""
        return len(self._aggregated) >= self.book.direct_floor

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
        if self.terms.active:
            if made.signature is None:
                raise VerificationError("a contribution is not signed")
            body = msgspec.msgpack.encode(msgspec.structs.replace(made, signature=None, prekeys=()))
            context = rules.contribution_context(book.digest, client, made.seed_mark, body)
            signing.verify(self.terms.identities[client], made.signature, context)
        self._add(client, made.payload)
        self.refills[name] = made.prekeys
        self._contributions[client] = msgspec.structs.replace(made, payload=b"", prekeys=())

    def _close_contributions(self) -> Outgoing:
        book, terms = self.book, self.terms
        self._aggregated = terms.aggregated(self._contributions)
        if len(self._aggregated) < terms.fewest:
            raise ThresholdError(f"{len(self._aggregated)} clients would be aggregated; the minimum is {terms.fewest}")
        self._opened = {dealer: rules.opened_secrets(book, dealer, self._aggregated) for dealer in self._aggregated}
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
        if not self._direct:
            return dict.fromkeys(self._asked, listed)
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

    # Trip 2, if many were lost.

    def _take_signature(self, client: int, message: SurvivorSignature) -> None:
        self._keep_signature(client, message.signature)

    def _keep_signature(self, client: int, signature: bytes) -> None:
        signing.verify(self.terms.identities[client], signature, rules.survivors_context(self.book, self._marks()))
        self._signatures[client] = signature

    def _close_signatures(self) -> Outgoing:
        self._check_confirmed(len(self._signatures))
        self._asked = frozenset(self._signatures)
        signatures = tuple(
            SurvivorSignature(self.book.digest, client, self._signatures[client]) for client in sorted(self._signatures)
        )
        return {
            client: SurvivorProof(self.book.digest, signatures, self._envelopes_for(client)) for client in self._asked
        }

    # The last trip.

    def _take_shares(self, holder: int, opened: OpenedShares) -> None:
        name = self.terms.clients[holder]
        wire.check_order([entry.dealer for entry in opened.dealers], name)
        for entry in opened.dealers:
            if entry.dealer not in self._aggregated:
                raise PeerProtocolError(name, f"revealed shares of client {entry.dealer}, who is not aggregated")
            if len(entry.shares) != SHARE_BYTES * len(self._opened[entry.dealer]):
                raise PeerProtocolError(name, f"revealed other shares of client {entry.dealer} than were asked for")
        if opened.signature is not None and self.terms.active:
            self._keep_signature(holder, opened.signature)
        for entry in opened.dealers:
            secrets = self._shares.setdefault(entry.dealer, {})
            for at, place in enumerate(self._opened[entry.dealer]):
                secrets.setdefault(place, {})[holder] = entry.shares[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]
        self._revealers.add(holder)

    def _close_shares(self) -> Outgoing:
        view = self.view()
        secrets, self.blame = recover_secrets(view)
        return self._finish(remove_masks(view, secrets, self._parallel))
