"""The mod of a ClientApp: the app's functions run when a session asks for their result, which leaves masked.

    app = ClientApp(mods=[private_mod])

Every other message is refused: one that asks for a plain model, or for the metrics of this node alone, would bypass all
protection. For refusals and failures the server gets one word of :mod:`~coterie.deployment.reasons`. The text of the
error is in this node's log.
"""

from flwr.app import ConfigRecordValues, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable

from coterie.deployment.contribution import MaskRounding
from coterie.deployment.engine import kind_of
from coterie.deployment.logs import LOGGER, traced
from coterie.deployment.node import Node, NodeSettings, run_config_digest
from coterie.deployment.reasons import Reason, word_for
from coterie.deployment.responder import NodeEntropy, Responder
from coterie.deployment.sessions import forget_given_up
from coterie.errors import CoterieError, PeerProtocolError, regarding
from coterie.reports.words import one_line
from coterie.secagg.messages import SERVER
from coterie.transports.flower.logs import join_flower_log
from coterie.transports.flower.records import ALTERED, HELLO, REFUSED, STEP, header_of, packed, without_ours
from coterie.transports.flower.request import FlowerRequest

join_flower_log()


class PrivateMod:
    """A Flower mod that answers for this node in sessions of secure aggregation."""

    def __init__(self, entropy: NodeEntropy | None = None, rounding: MaskRounding | None = None) -> None:
        """Make a mod; the two sources of randomness are arguments so that transcripts can be repeated."""
        self._entropy, self._rounding = entropy, rounding

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message, or refuse it."""
        word: str = Reason.REFUSED
        try:
            return self._answer(message, context, call_next)
        except CoterieError as error:
            word = word_for(error)
            LOGGER.warning("this node refuses a message: %s", one_line(error))
        except Exception as error:  # Flower would send its text to the server, and it may quote data
            LOGGER.warning("this node could not answer a message:\n%s", traced(error))
        return Message(Error(REFUSED, word), reply_to=message)

    def _answer(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        with regarding(Reason.SETTINGS):
            settings = NodeSettings.read(context.node_config)
        forget_given_up(settings.sessions)
        header = header_of(message.content) if message.has_content() else None
        if header is None:
            kind = kind_of(message.metadata.message_type)
            if kind in settings.allow:
                return call_next(message, context)
            with regarding(Reason.PLAIN):
                raise PeerProtocolError(SERVER, f"sent a plain {kind} message; the reply would not be protected")
        with regarding(Reason.SETTINGS):
            responder = Responder(Node(settings), self._entropy, self._rounding)
        said: dict[str, ConfigRecordValues] = {}
        if header.get("kind") == HELLO:
            said = {ALTERED: True} if without_ours(message.content) else {}
            about = message.metadata
            digest = run_config_digest(context.run_config)
            answer = responder.introduce(run=about.run_id, number=about.dst_node_id, run_config=digest)
        elif header.get("kind") == STEP:
            answer = responder.answer(FlowerRequest(message, header, context, call_next))
        else:
            with regarding(Reason.KIND):
                raise PeerProtocolError(SERVER, "sent an unknown kind of request")
        return Message(packed(answer, said), reply_to=message)


private_mod = PrivateMod()
