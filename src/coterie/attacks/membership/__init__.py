"""Passive membership inference: who merely looks at a model asks whether an example was trained on.

:mod:`~coterie.attacks.membership.scores` has the attacks as functions of arrays, :mod:`.rates` what they are worth,
:mod:`.candidates` the federations they are tried on, :mod:`.wire` what an eavesdropper sees of a secure aggregation.
"""
