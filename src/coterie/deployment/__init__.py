"""Everything that a network deployment needs, independently of the engine (Flower, NVFlare) that carries its messages.

On the server an :class:`~.aggregator.Aggregator` plays rounds of :mod:`coterie.rounds` over the engine's
:class:`~.engine.Carrier`. An :class:`~.enrolment.Enrolment` identifies the client behind each node and keeps the
roster. On a node, a :class:`~.reception.Reception` receives messages from the engine, and a
:class:`~.responder.Responder` answers each :class:`~.engine.NodeRequest` with data in the node's home folder: its
identity, its memory and its state between two messages. Between them, the roster's :class:`~.recipe.RosterRecipe` fixes
how a :class:`~.form.Form` turns the reply of an app into the vector that is masked, and a sum into a weighted mean.

In confined descent a node trains its own model: :mod:`~.confined` is the node's side, :mod:`~.descent` the server's
side, and :mod:`~.displacement` the chain of public models between them.

Start with :mod:`~.engine`, which lists what an engine has to provide; then read :mod:`~.aggregator` for the server and
:mod:`~.responder` for a node. :mod:`coterie.transports.flower` and :mod:`coterie.transports.nvflare` connect two
engines. This package uses no type of an engine.
"""
