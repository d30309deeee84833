"""Gradient inversion: reconstruct the examples that an update was computed from.

:mod:`~coterie.attacks.inversion.descent` searches for pictures whose gradient is like the observed one.
:mod:`.measure` does that for the update of a client and for the mean of its circle, and counts what is recognised.
"""
