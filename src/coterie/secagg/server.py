"""The server: it collects messages, closes steps, and removes only the masks of the sum.

    server = Server(terms)
    outgoing = server.invite()
    while outgoing:
        send it; server.receive(sender, message) for whatever arrives
        outgoing = server.close()
    server.aggregate

The caller decides when a step ends; there is no clock here. A bad message becomes a :class:`Rejected` value and
never harms the round. Masked inputs are added up as they arrive: memory holds one sum, or one for each circle.
The order of the steps is in :mod:`coterie.secagg.steps`, the work of each step in this class.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from types import MappingProxyType

from coterie.crypto import signing
from coterie.crypto.agreement import check_public
from coterie.errors import PeerProtocolError, ThresholdError
from coterie.secagg import messages, rules, steps
from coterie.secagg.base_server import Aggregate, BaseServer, Outgoing, Rejected, Stage
from coterie.secagg.masking import Map
from coterie.secagg.members import Members
from coterie.secagg.steps import Step
from coterie.secagg.terms import Terms
from coterie.secagg.unmasking import View, remove_masks, wrong_shares

__all__ = ["Aggregate", "Rejected", "Server", "Step"]


class Server(BaseServer):
    """One session, seen from the server.

    ::

        step       clients send    the server answers
        advertise  Advertisement   KeyBook
        share      SharedKeys      Deliveries
        mask       MaskedInput     Announcement
        confirm    Confirmation    Testimony    only against an active server
        reveal     Revelation      (it has the sum)
    """

    def __init__(self, terms: Terms, parallel: Map | None = None) -> None:
        super().__init__(terms, terms.digest, Step.ADVERTISE, steps.ROWS, parallel)
        self._seed = b""
        self._advertisements: dict[int, messages.Advertisement] = {}
        self._keys: set[bytes] = set()
        self._peers: dict[int, list[int]] = {}  # the neighbours of each client that advertised keys
        self._shared: dict[int, messages.SharedKeys] = {}
        self._seed_marks: dict[int, bytes] = {}
        self._share_marks: dict[int, dict[int, messages.Fingerprints]] = {}  # by holder, then by dealer
        self._sharers = Members.of((), len(terms.clients))
        self._survivors: set[int] = set()
        self._statements: dict[int, bytes] = {}
        self._confirmations: dict[int, messages.Confirmation] = {}
        self._self_shares: defaultdict[int, dict[int, bytes]] = defaultdict(dict)  # by dealer, then by holder
        self._key_shares: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        everybody = range(len(terms.clients))
        confirmed: Collection[int] = self._confirmations if terms.active else self._survivors
        self._stages = {
            Step.ADVERTISE: Stage(self._take_keys, self._close_keys, lambda: everybody, self._advertisements),
            Step.SHARE: Stage(self._take_shares, self._close_shares, lambda: self._advertisements, self._seed_marks),
            Step.MASK: Stage(self._take_input, self._close_inputs, lambda: self._seed_marks, self._survivors),
            Step.CONFIRM: Stage(
                self._take_confirmation, self._close_confirmations, lambda: self._survivors, self._confirmations
            ),
            Step.REVEAL: Stage(self._take_revelation, self._close_revelations, lambda: confirmed, self._revealers),
        }

    # The clients that are present after each step (V1 to V4 of the papers), by name.

    @property
    def advertisers(self) -> tuple[str, ...]:
        """Clients whose keys arrived."""
        return self._names(self._advertisements)

    @property
    def sharers(self) -> tuple[str, ...]:
        """Clients whose shares arrived."""
        return self._names(self._seed_marks)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Clients whose masked input arrived."""
        return self._names(self._survivors)

    def view(self) -> View:
        """Everything that this server holds, read-only: the data of a curious server."""
        return View(
            terms=self.terms,
            seed=self._seed,
            advertisements=MappingProxyType(self._advertisements),
            sharers=frozenset(self._seed_marks),
            seed_marks=MappingProxyType(self._seed_marks),
            survivors=frozenset(self._survivors),
            statements=MappingProxyType(self._statements),
            sums=self._totals(),
            aggregated=self._aggregated,
            confirmations=MappingProxyType(self._confirmations),
            self_shares=MappingProxyType(self._self_shares),
            key_shares=MappingProxyType(self._key_shares),
        )

    def invite(self) -> dict[str, bytes]:
        """Return the first message to every client: the terms."""
        invitation = messages.encode(messages.Invitation(self.terms.digest, self.terms.to_bytes()))
        return dict.fromkeys(self.terms.clients, invitation)

    def _following(self) -> Step:
        return steps.following(self.step, active=self.terms.active)

    # Step 0: keys.

    def _take_keys(self, client: int, advertisement: messages.Advertisement) -> None:
        check_public(advertisement.sealing_key)
        check_public(advertisement.masking_key)
        if self.terms.active:
            rules.check_advertisement(self.terms, advertisement)
        rules.check_distinct([advertisement], self._keys)
        self._keys.update((advertisement.sealing_key, advertisement.masking_key))
        self._advertisements[client] = advertisement

    def _close_keys(self) -> Outgoing:
        self._check_remaining(self._advertisements, "advertised their keys")
        self._seed = rules.graph_seed(self.terms, self._advertisements.values())
        everybody, graph = sorted(self._advertisements), self.terms.graph(self._seed)
        for client in everybody:
            self._peers[client] = [peer for peer in graph.neighbours(client) if peer in self._advertisements]
        if self.terms.active:
            return dict.fromkeys(everybody, self._key_book(everybody))
        return {client: self._key_book(self._peers[client]) for client in everybody}

    def _key_book(self, clients: Iterable[int]) -> messages.KeyBook:
        return messages.KeyBook(self.terms.digest, tuple(map(self._advertisements.__getitem__, clients)))

    # Step 1: shares.

    def _take_shares(self, client: int, shared: messages.SharedKeys) -> None:
        if [entry.peer for entry in shared.envelopes] != self._peers[client]:
            raise PeerProtocolError(self.terms.clients[client], "did not deal shares to exactly its neighbours")
        self._shared[client] = shared
        self._seed_marks[client] = shared.self_seed_mark

    def _close_shares(self) -> Outgoing:
        self._check_remaining(self._shared, "shared their keys")
        self._sharers = Members.of(self._shared, len(self.terms.clients))
        addressed: dict[int, list[messages.Envelope]] = {client: [] for client in self._shared}
        for dealer, shared in sorted(self._shared.items()):
            for envelope in shared.envelopes:
                if envelope.peer in addressed:
                    addressed[envelope.peer].append(messages.Envelope(dealer, envelope.sealed, envelope.marks))
        for holder, delivered in addressed.items():
            self._share_marks[holder] = {envelope.peer: envelope.marks for envelope in delivered}
            self._share_marks[holder][holder] = self._shared[holder].own_marks
        self._shared.clear()
        self._peers.clear()
        return {
            client: messages.Deliveries(self.terms.digest, tuple(delivered)) for client, delivered in addressed.items()
        }

    # Step 2: masked inputs.

    def _take_input(self, client: int, masked: messages.MaskedInput) -> None:
        if not self.terms.active:
            self._add(client, masked.payload)
        else:
            statement = rules.check_statement(self.terms, self._seed, client, self._sharers, masked.statement)
            self._add(client, masked.payload)
            self._statements[client] = statement
        self._survivors.add(client)

    def _close_inputs(self) -> Outgoing:
        terms = self.terms
        self._check_remaining(self._survivors, "sent a masked input")
        self._aggregated = terms.aggregated(self._survivors)
        rules.check_aggregate(terms, self._seed, self._aggregated)
        survivors = messages.encode_members(self._survivors, len(terms.clients))
        if not terms.active:
            return dict.fromkeys(self._survivors, messages.Announcement(terms.digest, survivors))
        graph = terms.graph(self._seed)
        statements = {client: messages.Statement(client, self._statements[client]) for client in self._aggregated}
        return {
            client: messages.Announcement(
                terms.digest,
                survivors,
                self._sharers.bits,
                tuple(statements[dealer] for dealer in graph.neighbours(client) if dealer in statements),
            )
            for client in self._survivors
        }

    # Consistency step: who survived.

    def _take_confirmation(self, client: int, confirmation: messages.Confirmation) -> None:
        context = rules.survivors_context(self.terms, self._seed, self._survivors)
        signing.verify(self.terms.identities[client], confirmation.signature, context)
        self._confirmations[client] = confirmation

    def _close_confirmations(self) -> Outgoing:
        self._check_confirmed(len(self._confirmations))
        confirmations = tuple(self._confirmations[client] for client in sorted(self._confirmations))
        return dict.fromkeys(self._confirmations, messages.Testimony(self.terms.digest, confirmations))

    # Step 3: shares of what must be opened.

    def _take_revelation(self, holder: int, revelation: messages.Revelation) -> None:
        """Store one share of each dealer, of the kind that the survivor set requires.

        They are not compared with the dealer's commitments yet: see :meth:`_close_revelations`.
        """
        name, dealers = self.terms.clients[holder], self._share_marks[holder].keys()
        of_seeds = [entry.dealer for entry in revelation.self_shares]
        of_keys = [entry.dealer for entry in revelation.key_shares]
        messages.check_order(of_seeds, name)
        messages.check_order(of_keys, name)
        right_kinds = self._aggregated.issuperset(of_seeds) and self._aggregated.isdisjoint(of_keys)
        if not (right_kinds and dealers >= {*of_seeds, *of_keys}):
            raise PeerProtocolError(name, "revealed a share that it does not hold, or one of the wrong kind")
        for self_share in revelation.self_shares:
            self._self_shares[self_share.dealer][holder] = self_share.share
        for key_share in revelation.key_shares:
            self._key_shares[key_share.dealer][holder] = key_share.share
        self._revealers.add(holder)

    def _close_revelations(self) -> Outgoing:
        """Remove the masks. If that fails, compare all shares with the dealers' commitments and try without the liars.

        Every secret that is recovered is compared with a commitment to the secret itself. If it fits, the shares that
        it was recovered from are right, so they are not compared one by one.
        """
        try:
            return self._finish(remove_masks(self.view(), self._parallel))
        except (PeerProtocolError, ThresholdError):
            self._reject_wrong_shares()
            return self._finish(remove_masks(self.view(), self._parallel))

    def _reject_wrong_shares(self) -> None:
        """Discard everything that was revealed by holders of whom one share is wrong, and name them."""
        for holder, reason in wrong_shares(self.view(), self._share_marks).items():
            self.rejected.append(Rejected(self.terms.clients[holder], self.step, reason))
            self._revealers.discard(holder)
            for shares in (*self._self_shares.values(), *self._key_shares.values()):
                shares.pop(holder, None)

    def _check_remaining(self, remaining: Collection[int], what: str) -> None:
        if len(remaining) < self.terms.fewest:
            raise ThresholdError(f"only {len(remaining)} clients {what}; the minimum is {self.terms.fewest}")
