"""Imprinting: the server crafts a model so that the sum of all updates contains individual examples.

:mod:`~coterie.attacks.imprint.layer` is the crafted layer, which sorts examples into bins. :mod:`.measure` puts it in
front of a model, plays a round, and counts the examples that the sum contains, with each defence.
"""
