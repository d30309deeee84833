"""What any network deployment needs, whichever engine carries its messages: Flower, or another one.

On the server an :class:`~.aggregator.Aggregator` plays rounds of :mod:`coterie.rounds` over the engine's
:class:`~.engine.Carrier`. An :class:`~.enrolment.Enrolment` finds out which node is which client and keeps the roster.
On a node a :class:`~.reception.Reception` takes in what the engine delivers, and a :class:`~.responder.Responder`
answers each :class:`~.engine.NodeRequest` from the node's home folder: its identity, its memory and its state between
two messages. Between them, the roster's :class:`~.recipe.RosterRecipe` fixes how a :class:`~.form.Form` turns the reply
of an app into the vector that is masked, and a sum into a weighted mean.

In confined descent a node trains a model of its own: :mod:`~.confined` is the node's half, :mod:`~.descent` the
server's, and :mod:`~.displacement` the chain of public models between them.

Start with :mod:`~.engine`, which lists what an engine has to provide; then read :mod:`~.aggregator` for the server and
:mod:`~.responder` for a node. :mod:`coterie.transports.flower` and :mod:`coterie.transports.nvflare` are two engines'
sides. Nothing here knows a type of an engine.
"""
