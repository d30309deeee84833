"""Passive membership inference: decide from a model that the attacker sees whether an example was trained on.

Start with :mod:`~coterie.attacks.membership.scores`, the attacks as functions of arrays. :mod:`.candidates` has the
examples that may be members, and the federations that are trained with some of them. :mod:`.measure` runs every attack
on every view of a federation, in several trials; success rates are computed in :mod:`coterie.attacks.ranking`.
:mod:`.statistics` combines the trials, with intervals, for :mod:`.report`.
"""
