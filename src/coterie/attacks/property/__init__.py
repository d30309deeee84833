"""Property inference over rounds: find the clients that have a certain kind of data, although their updates change.

Start with :mod:`~coterie.attacks.property.detector`, which scores a sum with a linear detector and attributes the
scores to clients (Kerkouche et al. 2023). :mod:`.measure` trains clients, some of which have pictures that are upside
down, under each selection, and ranks them by their scores. :mod:`.report` says how well the server finds these clients.
"""
