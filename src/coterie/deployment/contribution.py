"""A node's contribution: the app's function runs, and its reply becomes a vector by the recipe of the trusted roster.

Two values are permanent: the configuration of the task, and the node's weight. They are checked before the function is
called, thus before any data is read, and are on disk before the vector is sent. Neither the server nor the data can
change them later.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.memory import ClientMemory
from coterie.crypto.context import bind, digest
from coterie.deployment.confined import ConfinedNode, start_secret
from coterie.deployment.displacement import Displacement
from coterie.deployment.engine import AppReply, Arrays, NodeRequest
from coterie.deployment.first_use import check_unchanged, encode_configuration, join_configurations, task_name
from coterie.deployment.form import Form, Scaled
from coterie.deployment.logs import LOGGER, format_frames
from coterie.deployment.node import Node
from coterie.deployment.reasons import Reason
from coterie.deployment.recipe import ConfinedRecipe
from coterie.deployment.replies import check_reply
from coterie.errors import ConfigError, CoterieError, PeerProtocolError, TrainingError, regarding
from coterie.reports.words import one_line
from coterie.secagg.messages import SERVER
from coterie.secagg.terms import Terms

MaskRounding: TypeAlias = Callable[[], np.random.Generator]
"""Makes the generator for the rounding of a vector."""


class NodeContribution:
    """Computes the vector that a node contributes to one session, when it must be masked."""

    def __init__(
        self, node: Node, memory: ClientMemory, form: Form, request: NodeRequest, rounding: MaskRounding
    ) -> None:
        self._node, self._memory, self._form = node, memory, form
        self._request, self._rounding = request, rounding

    def __call__(self, terms: Terms) -> RingVector:
        """Run the app's function and encode its reply; the member has checked that the session is about this work."""
        form, memory, request = self._form, self._memory, self._request
        task, weighing = task_name(request.task.function), f"weight {form.kind}"
        weigher = f"function of {weighing}"
        with regarding(Reason.FORM):
            received = request.arrays() if form.arrays else {}
            ring, length = form.quantizer.ring, form.quantizer.length(form.layout(received))
            if (terms.bits, terms.length) != (ring.bits, length):
                raise PeerProtocolError(SERVER, "announced a session whose vectors do not fit the model and the recipe")
        with regarding(Reason.CONFIGURATION):
            check_unchanged(memory.fixed(task), self._configuration())
        with regarding(Reason.SETTINGS):
            own = self._own_weight(memory.fixed(weighing))
            self._check_weighing(self._weigher(weighing, weigher), task)
        with regarding(Reason.APP):
            scaled = self._run_and_scale(received)
        reported = scaled.weight if own is None else own
        self._fix_configuration()
        fixed = memory.fix({weighing: str(reported).encode(), weigher: task.encode()})
        with regarding(Reason.SETTINGS):
            self._check_weighing([fixed[weigher].decode()], task)
        weight = int(fixed[weighing])
        if weight != reported:
            LOGGER.info("%s has changed; this node keeps its first weight", one_line(form.recipe.weight))
        vector = form.encode(scaled, weight, self._rounding())
        others = len(terms.clients) - 1
        LOGGER.info("%s: sends its masked reply; %s other clients are in the session", self._node.settings.name, others)
        return vector

    def follow(self) -> None:
        """Judge the models of a confined descent without contributing; a node that never contributed ignores them."""
        memory, request = self._memory, self._request
        kept = memory.fixed(task_name(request.task.function))
        with regarding(Reason.FORM):
            if not isinstance(self._form.recipe, ConfinedRecipe):
                raise PeerProtocolError(SERVER, "showed a model outside a session, and this node has none of its own")
        if kept is not None:
            with regarding(Reason.CONFIGURATION):
                check_unchanged(kept, self._configuration())
            with regarding(Reason.APP):
                self._reply(request.arrays())

    def _configuration(self) -> bytes:
        """Return the server's configuration of this task, without keys that may vary."""
        return encode_configuration(self._request.configuration(self._form.recipe.varying))

    def _fix_configuration(self) -> None:
        """Store the configuration if it is the first; otherwise compare again: another process may have been first."""
        task, asked = task_name(self._request.task.function), self._configuration()
        with regarding(Reason.CONFIGURATION):
            check_unchanged(self._memory.fix({task: asked})[task], asked)

    def _check_judging(self, place: Displacement) -> None:
        """Refuse to evaluate together with nodes that judged the chain under another configuration.

        The server chooses the configuration that each node stores first. Nodes with different ones are not trained
        together, and must not be evaluated together either, because their models may differ.
        """
        kept = self._memory.fixed(place.task)
        with regarding(Reason.CHAIN):
            of_run = encode_configuration(self._request.run_configuration(self._form.recipe.varying))
            try:
                named = join_configurations(of_run, place.configuration)
            except ValueError:
                raise PeerProtocolError(SERVER, "names a configuration that cannot be read") from None
            if kept != named:
                raise PeerProtocolError(
                    SERVER, "asks to evaluate own models that were judged under another configuration than this node's"
                )

    def _own_weight(self, kept: bytes | None) -> int | None:
        """Return the weight that the operator set, if any; it must be the one that was used before."""
        if self._node.settings.weight is None:
            return None
        weight = self._form.clamped_weight(self._node.settings.weight)
        if weight < self._node.settings.weight:
            LOGGER.info("coterie-weight is more than a node counts for at most (most_examples)")
        if kept is not None and int(kept) != weight:
            raise ConfigError(
                "coterie-weight is not the weight that this node had before, and a weight never changes: remove the "
                "setting, or enrol the node under another name"
            )
        return weight

    def _weigher(self, weighing: str, weigher: str) -> list[str]:
        """Return the functions that may have reported this node's weight: none, one or several.

        A memory of an earlier version has a weight without its function, which is one of those that were configured.
        """
        memory = self._memory
        if (found := memory.fixed(weigher)) is not None:
            return [found.decode()]
        return [] if memory.fixed(weighing) is None else memory.fixed_names(f"task {self._form.kind}.")

    def _check_weighing(self, reporters: list[str], task: str) -> None:
        """Refuse another function than the one that reported this node's weight, unless its operator set the weight.

        The server may configure that function differently for each node before any sum is opened, and so choose the
        weights. For the function itself, nodes with different configurations are not summed, but for another function
        they would be. A node with weight 0 hides no other node.
        """
        if self._node.settings.weight is None and reporters not in ([], [task]):
            named = " or ".join(map(repr, reporters))
            raise ConfigError(
                f"this node's weight was reported by {named}, and {task!r} is another function of the app: found a new "
                "population and set coterie-weight on every node to use several functions"
            )

    def _run_and_scale(self, received: Arrays) -> Scaled:
        """Run the app's function. The server learns which part of a reply is missing; other failures have one word."""
        try:
            return self._form.scale(received, self._reply(received))
        except CoterieError:
            raise
        except Exception as error:  # its type may depend on values, so the server gets the word of any other failure
            LOGGER.warning("the app's reply cannot be encoded:\n%s", format_frames(error))
            raise TrainingError("the app's reply cannot be encoded") from None

    def _reply(self, received: Arrays) -> AppReply:
        """Return the reply for the received model; in confined descent, the node's own model takes its place."""
        recipe = self._form.recipe
        if not isinstance(recipe, ConfinedRecipe):
            return self._run(received)
        with regarding(Reason.FORM):
            shown = self._request.displacement()
        if shown is not None and not shown.models:  # a position in the chain
            self._check_judging(shown)
            judged_by = self._memory.fixed(shown.task)
        else:
            judged_by = self._configuration()
        node, settings = self._node, self._node.settings
        own = ConfinedNode(
            settings.folder,
            recipe.confinement,
            settings.name,
            start_secret(node.identity),
            digest(bind("confined judging", node.client.name.encode(), node.identity.public, judged_by or b"")),
            self._memory.fix,
            self._fix_configuration,
            settings.spread,
        )
        return own.reply(shown, self._request.task.function, lambda model: self._run(received, model))

    def _run(self, received: Arrays, model: Arrays | None = None) -> AppReply:
        reply = self._request.run_app(model)
        check_reply(self._form, received, reply)
        return reply
