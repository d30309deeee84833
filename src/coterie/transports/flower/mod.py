"""The mod of a ClientApp: it runs the app's functions when a session requests their result, and sends it masked.

    app = ClientApp(mods=[private_mod])

Every other message is refused, except for those that the operator allows (:mod:`coterie.deployment.reception`).
"""

import logging

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from coterie.deployment.contribution import MaskRounding
from coterie.deployment.logs import join_log
from coterie.deployment.reception import Reception
from coterie.deployment.responder import NodeEntropy
from coterie.transports.flower.request import FlowerDelivery

join_log(logging.getLogger("flwr"))


class PrivateMod:
    """A Flower mod that answers for this node in sessions of secure aggregation."""

    def __init__(self, entropy: NodeEntropy | None = None, rounding: MaskRounding | None = None) -> None:
        """Make a mod; the two sources of randomness are arguments, so that transcripts are reproducible."""
        self._reception = Reception(entropy, rounding)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message, or refuse it."""
        return self._reception.receive(context.node_config, FlowerDelivery(message, context, call_next))


private_mod = PrivateMod()
