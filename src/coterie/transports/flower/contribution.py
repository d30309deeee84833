"""A node's contribution: the app's function runs, and its reply becomes a vector by the recipe of the trusted roster.

What is fixed is checked before the function is called, so before data are looked at, and is on disk before the vector
leaves: how this task is configured, and what the node weighs. Neither follows what the server or the data say later.
"""

from collections.abc import Callable
from logging import INFO, WARNING

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.logger import log

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.memory import ClientMemory
from coterie.errors import ConfigError, CoterieError, PeerProtocolError, TrainingError, regarding
from coterie.secagg.messages import SERVER
from coterie.secagg.terms import Terms
from coterie.transports.flower.first_use import check_unchanged, configured, task_name
from coterie.transports.flower.form import Form, Scaled
from coterie.transports.flower.logs import shown, traced
from coterie.transports.flower.node import NodeSettings
from coterie.transports.flower.reasons import Reason
from coterie.transports.flower.records import without_ours
from coterie.transports.flower.replies import check_reply

MaskRounding = Callable[[], np.random.Generator]


class NodeContribution:
    """Makes what a node contributes to one session, when it is asked to mask it."""

    def __init__(
        self,
        settings: NodeSettings,
        memory: ClientMemory,
        form: Form,
        message: Message,
        context: Context,
        call_next: ClientAppCallable,
        rounding: MaskRounding,
    ) -> None:
        self._settings, self._memory, self._form = settings, memory, form
        self._message, self._context, self._call_next = message, context, call_next
        self._rounding = rounding

    def __call__(self, terms: Terms) -> RingVector:
        """Let the app's function work on what the session is about; that it is was checked by the member."""
        form, memory, received = self._form, self._memory, without_ours(self._message.content)
        task, weighing = task_name(self._message.metadata.message_type), f"weight {form.kind}"
        with regarding(Reason.FORM):
            ring, length = form.quantizer.ring, form.quantizer.length(form.layout(received))
            if (terms.bits, terms.length) != (ring.bits, length):
                raise PeerProtocolError(SERVER, "announced a session that does not fit what it sums")
        with regarding(Reason.CONFIGURATION):
            asked = configured(self._context.run_config, received, form.recipe.varying)
            check_unchanged(memory.fixed(task), asked)
        with regarding(Reason.SETTINGS):
            own = self._own_weight(memory.fixed(weighing))
        with regarding(Reason.APP):
            scaled = self._scaled(received)
        reported = scaled.weight if own is None else own
        kept = memory.fix({task: asked, weighing: str(reported).encode()})
        with regarding(Reason.CONFIGURATION):
            check_unchanged(kept[task], asked)  # again: another process may have been first
        weight = int(kept[weighing])
        if weight != reported:
            named = shown(form.recipe.weight)
            log(INFO, "Coterie: %s is %s now, and this node counts for %s, as at first", named, reported, weight)
        vector = form.encode(scaled, weight, self._rounding())
        log(INFO, "Coterie: the reply of this node leaves masked, among %s clients", len(terms.clients))
        return vector

    def _own_weight(self, kept: bytes | None) -> int | None:
        """Return the weight that the operator set, if any; it must be the one that was used before."""
        if self._settings.weight is None:
            return None
        weight = self._form.clamped_weight(self._settings.weight)
        if kept is not None and int(kept) != weight:
            raise ConfigError(
                f"coterie-weight is {self._settings.weight}, and this node has counted for {int(kept)} before: a "
                "weight is for good. Leave the setting out, or set it to that"
            )
        return weight

    def _scaled(self, received: RecordDict) -> Scaled:
        """Call the app's function; what its reply lacks is told by its structure, all else by one word."""
        reply = self._reply(received)
        check_reply(self._form, received, reply)
        try:
            return self._form.scale(received, reply)
        except CoterieError:
            raise
        except Exception as error:  # which one it is may depend on values, so it is told like any other failure
            log(WARNING, "the app's reply cannot be encoded:\n%s", traced(error))
            raise TrainingError("the app's reply cannot be encoded") from None

    def _reply(self, received: RecordDict) -> RecordDict:
        message = self._message
        ours = message.content
        message.content = _copied(received)  # an app may change what it is given, and reply with that
        try:
            reply = self._call_next(message, self._context)
        except Exception as error:  # the server would be told its text, which may quote data
            log(WARNING, "the app's function failed:\n%s", traced(error))
            raise TrainingError("the app's function failed") from None
        finally:
            message.content = ours
        if not reply.has_content():
            raise TrainingError("the app's function answered with an error")
        content: RecordDict = reply.content
        return content


def _copied(received: RecordDict) -> RecordDict:
    """Return records that can be changed without changing those that were received; the arrays' bytes are shared."""
    return RecordDict({key: record.copy() for key, record in received.items()})
