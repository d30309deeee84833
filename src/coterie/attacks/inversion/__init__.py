"""Gradient inversion: reconstruct the examples that an update was computed from.

Start with :mod:`~coterie.attacks.inversion.descent`, which searches for pictures whose gradient is like the observed
one. :mod:`.measure` does that for the update of a client, and for the mean update of its circle: as if it were the
client's own, and for the pictures of the whole circle together. :mod:`.report` counts the pictures that are recognised.
"""
