"""The mod: a client app's functions run when a session asks for their result, and that result leaves masked.

    app = ClientApp(mods=[private_mod])

Whatever else arrives is refused: a message that asks for a plain model or for the metrics of this node alone would be
the way around everything. Refusals and failures are told to the server by one word of :mod:`.reasons`; what the error
says is in this node's log.
"""

from collections.abc import Callable
from logging import INFO, WARNING

import msgspec
import numpy as np
from flwr.app import ConfigRecord, ConfigRecordValues, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.logger import log

from coterie.cohorts.memory import ClientMemory
from coterie.cohorts.roster import Roster
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.signing import each_signature_once
from coterie.errors import CoterieError, PeerProtocolError, regarding
from coterie.rounds.member import Member
from coterie.secagg.invitation import is_invitation
from coterie.secagg.messages import SERVER
from coterie.transports.flower.contribution import MaskRounding, NodeContribution
from coterie.transports.flower.credentials import Voucher, check_roster, introduce
from coterie.transports.flower.form import Form, Task, content_digest, form_under
from coterie.transports.flower.logs import shown, traced
from coterie.transports.flower.node import Node, NodeSettings, run_config_digest
from coterie.transports.flower.reasons import Reason, word_for
from coterie.transports.flower.recipe import RosterRecipe
from coterie.transports.flower.records import ALTERED, HELLO, REFUSED, STEP, header_of, packed, payload_of, without_ours
from coterie.transports.flower.sessions import Parked, forget_given_up, useful_until


class PrivateMod:
    """A Flower mod that answers for this node in sessions of secure aggregation."""

    def __init__(self, entropy: Callable[[str], Entropy] | None = None, rounding: MaskRounding | None = None) -> None:
        """Make a mod; the two sources of randomness are arguments for the sake of transcripts that repeat."""
        self._entropy = entropy
        self._rounding = rounding or np.random.default_rng

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message, or refuse it."""
        word: str = Reason.REFUSED
        try:
            return self._answer(message, context, call_next)
        except CoterieError as error:
            word = word_for(error)
            log(WARNING, "Coterie refuses a message: %s", shown(error))
        except Exception as error:  # Flower would send its text to the server, and it may quote data
            log(WARNING, "Coterie could not answer a message:\n%s", traced(error))
        return Message(Error(REFUSED, word), reply_to=message)

    def _answer(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        with regarding(Reason.SETTINGS):
            settings = NodeSettings.read(context.node_config)
        forget_given_up(settings.sessions)
        header = header_of(message.content) if message.has_content() else None
        if header is None:
            kind = message.metadata.message_type.partition(".")[0]
            if kind in settings.allow:
                return call_next(message, context)
            with regarding(Reason.PLAIN):
                raise PeerProtocolError(SERVER, f"asked for a {kind} that only this node would answer")
        with regarding(Reason.SETTINGS):
            node = Node(settings)
        said: dict[str, ConfigRecordValues] = {}
        if header.get("kind") == HELLO:
            said = {ALTERED: True} if without_ours(message.content) else {}
            with regarding(Reason.SETTINGS):
                answer = _introduction(node, message, context)
        elif header.get("kind") == STEP:
            with regarding(Reason.SESSION):
                answer = self._step(node, message, context, header, call_next)
        else:
            with regarding(Reason.KIND):
                raise PeerProtocolError(SERVER, "asked for something unknown")
        return Message(packed(answer, said), reply_to=message)

    def _step(
        self, node: Node, message: Message, context: Context, header: ConfigRecord, call_next: ClientAppCallable
    ) -> bytes:
        request = bytes.fromhex(message.content.object_id)
        with node.session(message.metadata.run_id) as place, node.memory() as file:
            parked = place.read()
            if parked is not None and parked.request == request:
                return parked.reply
            payload = payload_of(message.content, SERVER)
            memory = file.of(node.client)
            state = parked.state if parked is not None and not is_invitation(payload) else b""
            if not state:  # there is nothing to go on from, so the member would enter a session
                with regarding(Reason.ROSTER):
                    _trust(node.settings, memory, header)
            with regarding(Reason.FORM):
                form = _agreed(memory, message)
            member = Member(
                node.settings.name,
                NodeContribution(node.settings, memory, form, message, context, call_next, self._rounding),
                memory=memory,
                floor=node.settings.floor,
                identity=node.identity,
                entropy=self._entropy(node.settings.name) if self._entropy else SystemEntropy(),
            )
            if state:
                member.resume(state)
                about, received = message.metadata, without_ours(message.content)
                task = Task(about.run_id, about.message_type, about.group_id)
                # Compared when the member is asked to mask: a model, a configuration or a recipe that is not the one
                # of the session is refused before the app's function is called.
                member.content = content_digest(received, form, run_config_digest(context.run_config), task)
            with each_signature_once():  # in a simulation this process plays many nodes
                reply = member.answer(payload)
            until = useful_until(message.metadata.created_at, message.metadata.ttl)
            with regarding(Reason.SETTINGS):  # the node's folder may be full
                place.write(Parked(request, reply, member.park() if member.waiting else b""), until)
            return reply


private_mod = PrivateMod()


def _introduction(node: Node, message: Message, context: Context) -> bytes:
    with node.memory() as file:
        said = introduce(
            node.settings,
            node.identity,
            run=message.metadata.run_id,
            node=message.metadata.dst_node_id,
            run_config=run_config_digest(context.run_config),
            memory=file.of(node.client),
        )
    return msgspec.msgpack.encode(said)


def _trust(settings: NodeSettings, memory: ClientMemory, header: ConfigRecord) -> None:
    """Check the roster that an invitation is under, and take over those that came with it, if there are any."""
    sent = header.get("rosters", [])
    vouchers = header.get("vouchers", b"")
    if not isinstance(sent, list) or not isinstance(vouchers, bytes):
        raise PeerProtocolError(SERVER, "showed rosters that cannot be read")
    try:
        rosters = [Roster.from_bytes(_bytes(body)) for body in sent]
        known = msgspec.msgpack.decode(vouchers, type=dict[str, Voucher]) if vouchers else {}
    except ValueError:
        raise PeerProtocolError(SERVER, "showed rosters that cannot be read") from None
    check_roster(settings, memory, rosters, known)  # before any is remembered, which is for good
    if rosters:
        memory.trust(*rosters)
        last = rosters[-1]
        made = "; ".join(f"{name} {value}" for name, value in RosterRecipe.of(last).settings().items())
        words = f"version {last.version}, digest {last.digest.hex()}. Contributions are made by it for good: {made}"
        log(INFO, "Coterie: this node trusts roster %s", shown(words))


def _agreed(memory: ClientMemory, message: Message) -> Form:
    """Return the form of what this node contributes, by the roster it trusts: nothing in a message changes that."""
    if memory.roster is None:
        raise PeerProtocolError(SERVER, f"invited {memory.client.name}, who was never shown a roster")
    return form_under(memory.roster, message.metadata.message_type)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise PeerProtocolError(SERVER, "left something out")
    return value
