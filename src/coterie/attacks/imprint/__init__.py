"""Imprinting: the server crafts a model so that the sum of all updates contains individual examples.

Start with :mod:`~coterie.attacks.imprint.layer`, the crafted layer, which sorts examples into bins (Fowl et al. 2022).
:mod:`.measure` puts it in front of a model, plays a round by the real protocol, and counts the examples that the sum
contains, with each defence off and on. :mod:`.report` compares the defences.
"""
