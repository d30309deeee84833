"""Property inference over rounds: find the clients that have a certain kind of data, although their updates change.

:mod:`~coterie.attacks.property.detector` scores a sum with a linear detector and attributes the scores to clients.
:mod:`.measure` trains clients, some of which have pictures that are upside down, and ranks them by their scores.
"""
