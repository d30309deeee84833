"""The server: collects messages, closes steps, removes the masks of the sum and of nothing else.

    server = Server(terms)
    outgoing = server.invite()
    while outgoing:
        send it; server.receive(sender, message) for whatever arrives
        outgoing = server.close()
    server.aggregate

The caller decides when a step ends; there is no clock here. A bad message becomes a :class:`Rejected` value and
never harms the round. Masked inputs are added up as they arrive: memory holds one vector, or one for each batch.
"""

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir, signing
from coterie.crypto.agreement import PrivateKey, check_public
from coterie.errors import (
    InputError,
    LocalProtocolError,
    PeerProtocolError,
    ThresholdError,
    VerificationError,
)
from coterie.graphs.topology import Graph
from coterie.secagg import messages, rules
from coterie.secagg.masking import Map, adds, mask_vector, pair_seed
from coterie.secagg.terms import Terms

M = TypeVar("M", bound=messages.ClientMessage)


class Step(enum.StrEnum):
    """The steps of a session, each named after the message clients send in it."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    CONFIRM = "confirm"
    REVEAL = "reveal"
    DONE = "done"


@dataclass(frozen=True)
class Rejected:
    """A message that was not accepted; the session is as if it had never arrived."""

    sender: str
    step: Step
    reason: str


@dataclass(frozen=True)
class Aggregate:
    """What a session yields."""

    total: RingVector
    """The sum of the inputs of exactly the ``clients``, in the ring."""
    clients: tuple[str, ...]


class Server:
    """One session, seen from the server."""

    def __init__(self, terms: Terms, parallel: Map | None = None) -> None:
        self.terms = terms
        self.step = Step.ADVERTISE
        self.rejected: list[Rejected] = []
        self._parallel = parallel
        self._seed = b""
        self._advertisements: dict[int, messages.Advertisement] = {}
        self._envelopes: dict[int, tuple[messages.Envelope, ...]] = {}
        self._seed_marks: dict[int, bytes] = {}
        self._share_marks: dict[int, dict[int, messages.Fingerprints]] = {}
        self._sums: dict[int, RingVector] = {}
        self._survivors: set[int] = set()
        self._aggregated: frozenset[int] = frozenset()
        self._confirmations: dict[int, messages.Confirmation] = {}
        self._self_shares: dict[int, dict[int, bytes]] = {}
        self._key_shares: dict[int, dict[int, bytes]] = {}
        self._revealers: set[int] = set()
        self._aggregate: Aggregate | None = None

    def __repr__(self) -> str:
        return f"<Server of session {self.terms.session.hex()[:8]}, step {self.step}>"

    # Who is still there after each step (V1 to V4 of the papers), by name.

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

    @property
    def revealers(self) -> tuple[str, ...]:
        """Clients whose shares of others' secrets arrived and checked out."""
        return self._names(self._revealers)

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Clients whose sum is about to be revealed; known, and final, once the masking step is closed."""
        return self._names(self._aggregated)

    @property
    def aggregate(self) -> Aggregate:
        """The sum; known once the last step is closed."""
        if self._aggregate is None:
            raise LocalProtocolError(f"there is no sum in step {self.step}")
        return self._aggregate

    def invite(self) -> dict[str, bytes]:
        """Return what to send to every client to begin with: the terms."""
        invitation = messages.encode(messages.Invitation(self.terms.digest, self.terms.to_bytes()))
        return dict.fromkeys(self.terms.clients, invitation)

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
        """End the current step and return what to send to whom; raise if the session cannot go on.

        Closing the last step removes the masks. Nothing is left to send then, and :attr:`aggregate` is there. It raises
        :class:`ThresholdError`, naming every client concerned, where a client that is aggregated, or one that
        left a mask on somebody who is, has fewer revealed shares than its threshold: exactly when
        Theorem 1 of Choi et al. (2020) says that the sum cannot be had.
        """
        closing: dict[Step, Callable[[], dict[int, messages.Message]]] = {
            Step.ADVERTISE: self._close_advertise,
            Step.SHARE: self._close_share,
            Step.MASK: self._close_mask,
            Step.CONFIRM: self._close_confirm,
            Step.REVEAL: self._close_reveal,
        }
        if self.step not in closing:
            raise LocalProtocolError("the session is over: there is nothing to close")
        outgoing = closing[self.step]()
        order = list(Step)
        following = order[order.index(self.step) + 1]
        self.step = Step.REVEAL if following is Step.CONFIRM and not self.terms.active else following
        return {self.terms.clients[client]: messages.encode(message) for client, message in outgoing.items()}

    # Receiving.

    def _receive(self, sender: str, data: bytes) -> None:
        client = self.terms.index.get(sender)
        if client is None:
            raise PeerProtocolError(sender, "is not in the terms")
        if self.step is Step.ADVERTISE:
            advertisement = self._decode(data, messages.Advertisement, client, self._advertisements)
            check_public(advertisement.sealing_key)
            check_public(advertisement.masking_key)
            if self.terms.active:
                rules.check_advertisement(self.terms, advertisement)
            self._advertisements[client] = advertisement
        elif self.step is Step.SHARE:
            shared = self._decode(data, messages.SharedKeys, client, self._seed_marks, self._advertisements)
            wanted = [peer for peer in self._graph().neighbours(client) if peer in self._advertisements]
            if [envelope.peer for envelope in shared.envelopes] != wanted:
                raise PeerProtocolError(sender, "did not deal shares to exactly its neighbours")
            self._envelopes[client] = shared.envelopes
            self._seed_marks[client] = shared.self_seed_mark
            self._share_marks[client] = {entry.peer: entry.marks for entry in shared.envelopes}
            self._share_marks[client][client] = shared.own_marks
        elif self.step is Step.MASK:
            masked = self._decode(data, messages.MaskedInput, client, self._survivors, self._seed_marks)
            vector = self.terms.ring.unpack(masked.payload, self.terms.length)
            batch = self._batch(client)
            if batch in self._sums:
                self._sums[batch] += vector
            else:
                self._sums[batch] = vector
            self._survivors.add(client)
        elif self.step is Step.CONFIRM:
            confirmation = self._decode(data, messages.Confirmation, client, self._confirmations, self._survivors)
            context = rules.survivors_context(self.terms, self._seed, self._survivors)
            signing.verify(self.terms.identities[client], confirmation.signature, context)
            self._confirmations[client] = confirmation
        elif self.step is Step.REVEAL:
            expected: Collection[int] = self._confirmations if self.terms.active else self._survivors
            revelation = self._decode(data, messages.Revelation, client, self._revealers, expected)
            self._check_revelation(client, revelation)
            for self_share in revelation.self_shares:
                self._self_shares.setdefault(self_share.dealer, {})[client] = self_share.share
            for key_share in revelation.key_shares:
                self._key_shares.setdefault(key_share.dealer, {})[client] = key_share.share
            self._revealers.add(client)
        else:
            raise PeerProtocolError(sender, "sent a message after the session ended")

    def _decode(
        self,
        data: bytes,
        kind: type[M],
        client: int,
        received: Collection[int],
        expected: Collection[int] | None = None,
    ) -> M:
        name = self.terms.clients[client]
        if expected is not None and client not in expected:
            raise PeerProtocolError(name, f"takes no part in step {self.step}")
        if client in received:
            raise PeerProtocolError(name, f"was already heard in step {self.step}")
        message = messages.decode(data, kind, name, self.terms.digest)
        messages.check_sender(message, client, name)
        return message

    def _check_revelation(self, holder: int, revelation: messages.Revelation) -> None:
        """Every share must be one that the dealer committed to, of the kind that the survivor set calls for."""
        name, terms = self.terms.clients[holder], self.terms.digest
        messages.check_order([entry.dealer for entry in revelation.self_shares], name)
        messages.check_order([entry.dealer for entry in revelation.key_shares], name)
        for self_share in revelation.self_shares:
            dealer = self_share.dealer
            marks = self._share_marks.get(dealer, {}).get(holder)
            mark = rules.self_share_mark(terms, dealer, holder, self_share.share)
            if dealer not in self._aggregated or marks is None or marks.self_share != mark:
                raise PeerProtocolError(name, f"revealed a wrong self share of client {dealer}")
        for key_share in revelation.key_shares:
            dealer = key_share.dealer
            marks = self._share_marks.get(dealer, {}).get(holder)
            mark = rules.key_share_mark(terms, dealer, holder, key_share.share)
            if dealer in self._aggregated or marks is None or marks.key_share != mark:
                raise PeerProtocolError(name, f"revealed a wrong key share of client {dealer}")

    # Closing.

    def _close_advertise(self) -> dict[int, messages.Message]:
        self._check_remaining(self._advertisements, "advertised their keys")
        self._seed = rules.graph_seed(self.terms, self._advertisements.values())
        everybody = sorted(self._advertisements)
        graph = self._graph()
        return {
            client: messages.KeyBook(
                self.terms.digest,
                tuple(
                    self._advertisements[peer]
                    for peer in (everybody if self.terms.active else graph.neighbours(client))
                    if peer in self._advertisements
                ),
            )
            for client in everybody
        }

    def _close_share(self) -> dict[int, messages.Message]:
        self._check_remaining(self._envelopes, "shared their keys")
        addressed: dict[int, list[messages.Envelope]] = {client: [] for client in self._envelopes}
        for dealer, envelopes in sorted(self._envelopes.items()):
            for envelope in envelopes:
                if envelope.peer in addressed:
                    addressed[envelope.peer].append(messages.Envelope(dealer, envelope.sealed, envelope.marks))
        self._envelopes.clear()
        return {
            client: messages.Deliveries(self.terms.digest, tuple(delivered)) for client, delivered in addressed.items()
        }

    def _close_mask(self) -> dict[int, messages.Message]:
        self._check_remaining(self._survivors, "sent a masked input")
        self._aggregated = self.terms.aggregated(self._survivors)
        rules.check_aggregate(self.terms, self._seed, self._aggregated)
        members = messages.encode_members(self._survivors, len(self.terms.clients))
        return {client: messages.Announcement(self.terms.digest, members) for client in self._survivors}

    def _close_confirm(self) -> dict[int, messages.Message]:
        if len(self._confirmations) < self.terms.quorum:
            raise ThresholdError(
                f"{len(self._confirmations)} clients confirmed the survivors; {self.terms.quorum} are needed"
            )
        testimony = messages.Testimony(
            self.terms.digest, tuple(self._confirmations[client] for client in sorted(self._confirmations))
        )
        return dict.fromkeys(self._confirmations, testimony)

    def _close_reveal(self) -> dict[int, messages.Message]:
        """Recover the secrets that were opened and remove all masks."""
        aggregated, graph = self._aggregated, self._graph()
        left = {
            client: [peer for peer in graph.neighbours(client) if peer in aggregated]
            for client in self._seed_marks.keys() - aggregated
        }
        self._check_informative(graph, aggregated, [client for client, marked in left.items() if marked])
        added: list[bytes] = []
        subtracted = [self._recover_seed(client) for client in aggregated]
        for client, marked in left.items():
            if marked:
                key = self._recover_key(client)
                for peer in marked:
                    seeds = subtracted if adds(peer, client) else added
                    seeds.append(pair_seed(key, self._advertisements[peer].masking_key, self.terms.digest))
        total = self.terms.ring.zeros(self.terms.length)
        for batch in {self._batch(client) for client in aggregated}:
            total += self._sums[batch]
        self._sums.clear()
        mask_vector(total, added, subtracted, self._parallel)
        self.terms.ring.reduce(total)
        self._aggregate = Aggregate(total, self._names(aggregated))
        return {}

    def _check_remaining(self, remaining: Collection[int], what: str) -> None:
        if len(remaining) < self.terms.minimum:
            raise ThresholdError(f"only {len(remaining)} clients {what}; the minimum is {self.terms.minimum}")

    # Unmasking.

    def _check_informative(self, graph: Graph, aggregated: Collection[int], dropped: Collection[int]) -> None:
        shortfall = {}
        for clients, shares in ((aggregated, self._self_shares), (dropped, self._key_shares)):
            for client in clients:
                have, need = len(shares.get(client, ())), self._threshold(graph, client)
                if have < need:
                    shortfall[self.terms.clients[client]] = (have, need)
        if shortfall:
            raise ThresholdError(
                f"too few shares were revealed to remove the masks of {len(shortfall)} clients", shortfall
            )

    def _recover_seed(self, client: int) -> bytes:
        seed = self._combine(client, self._self_shares[client])
        if rules.self_seed_mark(self.terms.digest, client, seed) != self._seed_marks[client]:
            raise PeerProtocolError(
                self.terms.clients[client], "dealt shares of its self seed that do not fit together"
            )
        return seed

    def _recover_key(self, client: int) -> PrivateKey:
        key = PrivateKey(self._combine(client, self._key_shares[client]))
        if key.public != self._advertisements[client].masking_key:
            raise PeerProtocolError(self.terms.clients[client], "dealt shares of another key than it advertised")
        return key

    def _combine(self, client: int, shares: dict[int, bytes]) -> bytes:
        holders = sorted(shares)[: self._threshold(self._graph(), client)]
        try:
            return shamir.combine([holder + 1 for holder in holders], [shares[holder] for holder in holders])
        except VerificationError as error:
            raise PeerProtocolError(self.terms.clients[client], str(error)) from None

    # Small things.

    def _graph(self) -> Graph:
        return self.terms.graph(self._seed)

    def _threshold(self, graph: Graph, client: int) -> int:
        return self.terms.threshold_for(graph.degree(client) + 1)

    def _batch(self, client: int) -> int:
        return 0 if self.terms.batches is None else self.terms.batches[client]

    def _names(self, clients: Collection[int]) -> tuple[str, ...]:
        return tuple(self.terms.clients[client] for client in sorted(clients))
