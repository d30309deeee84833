"""The responder: a node's side of a deployment. It introduces the node, and answers the steps of sessions.

An engine may deliver a request twice, or start a new process for each. So the answer and the state after it are on disk
before the answer is sent, and a repeated request gets the same bytes. In the papers' protocol they are in the file of
the run's session. In two trips they are in the node's memory, written in the same transaction that marks the prekey as
used; a large reply is written to the file of the run's session before that transaction. A session is entered only under
a roster that the operator's settings accept.
"""

import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec
import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.memory import ClientMemory
from coterie.cohorts.prekey_tables import Retention
from coterie.cohorts.roster import Roster
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.signing import each_signature_once
from coterie.deployment.contribution import MaskRounding, NodeContribution
from coterie.deployment.credentials import Voucher, check_roster, introduce
from coterie.deployment.engine import Hello, NodeRequest
from coterie.deployment.form import Form, content_digest, form_under
from coterie.deployment.logs import LOGGER, quote
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.reasons import Reason
from coterie.deployment.recipe import RosterRecipe
from coterie.deployment.sessions import Parked, SessionReplies, useful_until
from coterie.errors import ConfigError, LocalProtocolError, PeerProtocolError, regarding
from coterie.reports.words import one_line
from coterie.rounds.member import Contribute, Member
from coterie.secagg.invitation import is_invitation
from coterie.secagg.messages import SERVER
from coterie.secagg.prekeys.book import is_book, is_book_message
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.terms import Terms

NodeEntropy: TypeAlias = Callable[[str], Entropy]
"""Makes the source of a node's secrets from its name."""


class Responder:
    """Answers for a node."""

    def __init__(self, node: Node, entropy: NodeEntropy | None = None, rounding: MaskRounding | None = None) -> None:
        """Answer for this node; the two sources of randomness are arguments, so that transcripts are reproducible."""
        self._node = node
        self._entropy = entropy
        self._rounding = rounding or np.random.default_rng

    def introduce(self, hello: Hello) -> bytes:
        """Return the node's introduction, signed for this run and this node number, with prekeys if requested."""
        node = self._node
        with regarding(Reason.SETTINGS), node.memory() as file:
            memory = file.of(node.client)
            memory.erase_expired(time.time())
            if hello.rosters:
                with regarding(Reason.ROSTER):
                    trust_rosters(node.settings, memory, hello.rosters, hello.vouchers)
            offer = self._offer(memory, hello) if hello.prekeys else b""
            known = f"roster version {memory.roster.version}" if memory.roster else "no roster yet"
            key = node.identity.public.hex()[:16]
            LOGGER.info("%s: says who it is: identity key %s..., trusts %s", node.settings.name, key, known)
            said = introduce(
                node.settings,
                node.identity,
                run=hello.run,
                node=hello.number,
                run_config=hello.run_config,
                memory=memory,
                prekeys=offer,
            )
        return said.to_bytes()

    def answer(self, request: NodeRequest) -> bytes:
        """Return the answer to a step of a session; each error that it raises has a word of :class:`Reason`."""
        with regarding(Reason.SESSION):
            try:
                return self._answer(request)
            except ConfigError as error:  # the node's disk may be full
                error.about = error.about or Reason.SETTINGS
                raise

    def follow(self, request: NodeRequest) -> bytes:
        """Judge the models of a request outside a session; the answer is always empty."""
        node = self._node
        with regarding(Reason.SESSION), node.memory() as file:
            memory = file.of(node.client)
            with regarding(Reason.FORM):
                form = _form(memory, request.task.function)
            NodeContribution(node, memory, form, request, self._rounding).follow()
        return b""

    def _answer(self, request: NodeRequest) -> bytes:
        node = self._node
        until = useful_until(request.created_at, request.ttl)
        with node.session(request.task.run) as place, node.memory() as file:
            payload = request.payload()
            two_trips = is_book(payload) or is_book_message(payload)
            # In two trips the file may be large, and is rarely needed; nor is the digest of the request.
            parked, identifier = (None, b"") if two_trips else (place.read(), request.identifier())
            if parked is not None and parked.request == identifier:
                return parked.reply
            if request.notice:
                LOGGER.warning("%s: the server says: %s", node.settings.name, quote(request.notice))
            replies = SessionReplies(place, until)
            memory = file.of(node.client, Retention(f"{request.task.run:x}", until), replies)
            memory.erase_expired(time.time())
            state = parked.state if parked is not None and not is_invitation(payload) else b""
            if not state and not is_book_message(payload):  # the member would enter a session
                with regarding(Reason.ROSTER):
                    trust_rosters(node.settings, memory, request.rosters, request.vouchers)
            with regarding(Reason.FORM):
                form = _form(memory, request.task.function)
            member = self._member(memory, NodeContribution(node, memory, form, request, self._rounding))
            if state:
                member.resume(state)
            if state or two_trips:
                # Compared before the app's function is called: the model, the configuration and the recipe must be
                # those of the session.
                member.content = content_digest(request.content(), form, request.run_config, request.task)
            with each_signature_once():  # in a simulation this process plays many nodes
                reply = member.answer(payload)
            if not two_trips:
                place.write(Parked(identifier, reply, member.park() if member.waiting else b""), until)
            elif not replies.used:
                # A contribution that has arrived, or a state of the papers' protocol whose session the server has
                # abandoned.
                place.remove()
            return reply

    def _offer(self, memory: ClientMemory, hello: Hello) -> bytes:
        """Return all unused prekeys; empty if this node does not know its population."""
        floor = self._node.settings.floor
        if not hello.rosters and (not memory.knows_population or floor.protocol == SessionProtocol.PAPERS):
            return b""  # if it has to have prekeys, the server asks again and shows all rosters
        with regarding(Reason.FLOOR):
            floor.check_protocol(SessionProtocol.TWO_TRIPS)
        with regarding(Reason.ROSTER):
            return self._member(memory, _no_contribution).offer(renew=hello.renew)

    def _member(self, memory: ClientMemory, contribute: Contribute) -> Member:
        node = self._node
        return Member(
            node.settings.name,
            contribute,
            memory=memory,
            floor=node.settings.floor,
            identity=node.identity,
            entropy=self._entropy(node.settings.name) if self._entropy else SystemEntropy(),
            clock=time.time,
        )


def _no_contribution(_terms: Terms) -> RingVector:
    raise LocalProtocolError("an enrolment request asks for no contribution")


def trust_rosters(settings: NodeSettings, memory: ClientMemory, sent: object, vouchers: object) -> None:
    """Check the roster of an invitation, and trust the rosters that came with it, if there are any."""
    if not isinstance(sent, list | tuple) or not isinstance(vouchers, bytes):
        raise PeerProtocolError(SERVER, "showed rosters that cannot be read")
    try:
        rosters = [Roster.from_bytes(_bytes(body)) for body in sent]
        known = msgspec.msgpack.decode(vouchers, type=dict[str, Voucher]) if vouchers else {}
    except ValueError:
        raise PeerProtocolError(SERVER, "showed rosters that cannot be read") from None
    check_roster(settings, memory, rosters, known)  # before a roster is trusted, because that cannot be undone
    if rosters:
        memory.trust(*rosters)
        last = rosters[-1]
        made = "; ".join(f"{name} {value}" for name, value in RosterRecipe.of(last).settings().items())
        words = f"version {last.version}, digest {last.digest.hex()}. It fixes how contributions are made: {made}"
        LOGGER.info("%s: trusts roster %s", settings.name, one_line(words))


def _form(memory: ClientMemory, function: str) -> Form:
    """Return the form of this node's contribution, according to the roster that it trusts. No message can change it."""
    if memory.roster is None:
        raise PeerProtocolError(SERVER, f"invited {memory.client.name}, who was never shown a roster")
    return form_under(memory.roster, function)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise PeerProtocolError(SERVER, "showed rosters that are not bytes")
    return value
