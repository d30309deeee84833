"""Passive membership inference: decide from a model that the attacker sees whether an example was trained on.

:mod:`~coterie.attacks.membership.scores` has the attacks as functions of arrays, :mod:`.candidates` the federations
they run on, and :mod:`.measure` one trial of all of them. Success rates are in :mod:`coterie.attacks.ranking`.
"""
