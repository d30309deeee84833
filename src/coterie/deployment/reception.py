"""The reception of a node: every delivery of an engine is answered, passed to the app, or refused with one word.

A message that is not a step of a session is refused, because a request for a plain model or for the metrics of this
node alone would bypass all protection. Evaluation and queries reach the app only if the operator allows it. The server
gets one word of :mod:`~coterie.deployment.reasons` for each refusal and failure; the text of the error is in the node's
log.
"""

from collections.abc import Mapping
from typing import TypeVar

from coterie.deployment.contribution import MaskRounding
from coterie.deployment.engine import HELLO, SHOW, STEP, Delivery, kind_of
from coterie.deployment.logs import LOGGER, Subject, format_frames
from coterie.deployment.node import Node, NodeSettings
from coterie.deployment.reasons import Reason, word_for
from coterie.deployment.responder import NodeEntropy, Responder
from coterie.deployment.sessions import delete_expired
from coterie.errors import CoterieError, PeerProtocolError, regarding
from coterie.reports.words import one_line, size
from coterie.secagg.messages import SERVER

T = TypeVar("T")


class Reception:
    """Receives deliveries for a node."""

    def __init__(self, entropy: NodeEntropy | None = None, rounding: MaskRounding | None = None) -> None:
        """Open a reception; the two sources of randomness are arguments, so that transcripts are reproducible."""
        self._entropy, self._rounding = entropy, rounding

    def receive(self, node_config: Mapping[str, object], delivery: Delivery[T]) -> T:
        """Return the engine's reply to a delivery; this never raises an error."""
        word: str = Reason.REFUSED
        subject = Subject()
        try:
            return self._receive(node_config, delivery, subject)
        except CoterieError as error:
            word = word_for(error)
            LOGGER.warning("%s: refuses a message: %s", subject, one_line(error))
        except Exception as error:  # an engine may send the text of an error to the server, and it may quote data
            LOGGER.warning("%s: could not answer a message:\n%s", subject, format_frames(error))
        return delivery.refuse(word)

    def _receive(self, node_config: Mapping[str, object], delivery: Delivery[T], subject: Subject) -> T:
        with regarding(Reason.SETTINGS):
            settings = NodeSettings.read(node_config)
        subject.node = settings.name
        delete_expired(settings.sessions)
        if (kind := delivery.kind()) is None:
            plain = kind_of(delivery.function)
            if plain in settings.allow:
                return delivery.pass_on()
            with regarding(Reason.PLAIN):
                raise PeerProtocolError(SERVER, f"sent a plain {plain} message; the reply would not be protected")
        subject.work = delivery.about()
        with regarding(Reason.SETTINGS):
            responder = Responder(Node(settings), self._entropy, self._rounding)
        if kind == HELLO:
            return delivery.reply(responder.introduce(delivery.hello()))
        if kind not in (STEP, SHOW):
            with regarding(Reason.KIND):
                raise PeerProtocolError(SERVER, "sent an unknown kind of request")
        request = delivery.request()
        answer = responder.answer(request) if kind == STEP else responder.follow(request)
        LOGGER.info("%s: answered with %s", subject, size(len(answer)))
        return delivery.reply(answer)
