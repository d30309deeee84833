"""Passive membership inference: was an example trained on, judged from a model that the attacker sees.

:mod:`~coterie.attacks.membership.scores` has the attacks as functions of arrays, :mod:`.rates` their success rates,
:mod:`.candidates` the federations they are tried on, and :mod:`.measure` one trial of all of them.
"""
