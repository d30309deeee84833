"""The mod of a ClientApp: the app's functions run when a session asks for their result, which leaves masked.

    app = ClientApp(mods=[private_mod])

Every other message is refused: one that asks for a plain model, or for the metrics of this node alone, would bypass all
protection. For refusals and failures the server gets one word of :mod:`~coterie.deployment.reasons`. The text of the
error is in this node's log.
"""

from contextvars import ContextVar

from flwr.app import ConfigRecordValues, Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable

from coterie.deployment.contribution import MaskRounding
from coterie.deployment.engine import kind_of
from coterie.deployment.logs import LOGGER, Subject, traced
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.reasons import Reason, word_for
from coterie.deployment.responder import NodeEntropy, Responder
from coterie.deployment.sessions import forget_given_up
from coterie.errors import ConfigError, CoterieError, PeerProtocolError, regarding
from coterie.reports.words import one_line, size
from coterie.secagg.messages import SERVER
from coterie.transports.flower.logs import join_flower_log
from coterie.transports.flower.records import ALTERED, HELLO, REFUSED, SHOW, STEP, header_of, packed, without_ours
from coterie.transports.flower.request import FlowerRequest, hello_of

join_flower_log()

_answering = ContextVar("answering", default=False)
"""Whether a mod around this one is answering a message."""


class PrivateMod:
    """A Flower mod that answers for this node in sessions of secure aggregation."""

    def __init__(self, entropy: NodeEntropy | None = None, rounding: MaskRounding | None = None) -> None:
        """Make a mod; the two sources of randomness are arguments so that transcripts can be repeated."""
        self._entropy, self._rounding = entropy, rounding

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message, or refuse it."""
        word: str = Reason.REFUSED
        subject = Subject()
        try:
            return self._answer(message, context, call_next, subject)
        except CoterieError as error:
            word = word_for(error)
            LOGGER.warning("%s: refuses a message: %s", subject, one_line(error))
        except Exception as error:  # Flower would send its text to the server, and it may quote data
            LOGGER.warning("%s: could not answer a message:\n%s", subject, traced(error))
        return Message(Error(REFUSED, word), reply_to=message)

    def _answer(self, message: Message, context: Context, call_next: ClientAppCallable, subject: Subject) -> Message:
        if _answering.get():
            raise ConfigError("private_mod is listed twice: once in ClientApp(mods=[...]) or at a function is enough")
        with regarding(Reason.SETTINGS):
            settings = NodeSettings.read(context.node_config)
        subject.node = settings.name
        forget_given_up(settings.sessions)
        header = header_of(message.content) if message.has_content() else None
        if header is None:
            kind = kind_of(message.metadata.message_type)
            if kind in settings.allow:
                return call_next(message, context)
            with regarding(Reason.PLAIN):
                raise PeerProtocolError(SERVER, f"sent a plain {kind} message; the reply would not be protected")
        subject.work = str(header.get("about", ""))
        with regarding(Reason.SETTINGS):
            responder = Responder(Node(settings), self._entropy, self._rounding)
        said: dict[str, ConfigRecordValues] = {}
        if header.get("kind") == HELLO:
            said = {ALTERED: True} if without_ours(message.content) else {}
            answer = responder.introduce(hello_of(message, header, context))
        elif header.get("kind") in (STEP, SHOW):
            token = _answering.set(True)
            try:
                request = FlowerRequest(message, header, context, call_next)
                answer = responder.answer(request) if header["kind"] == STEP else responder.follow(request)
            finally:
                _answering.reset(token)
            LOGGER.info("%s: answered with %s", subject, size(len(answer)))
        else:
            with regarding(Reason.KIND):
                raise PeerProtocolError(SERVER, "sent an unknown kind of request")
        return Message(packed(answer, said), reply_to=message)


private_mod = PrivateMod()
