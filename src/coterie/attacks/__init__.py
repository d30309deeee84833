"""Attacks on federated learning: each run without its defence, and with it.

An attack is a frozen dataclass of its settings with a ``threat`` and a ``play``, as
:class:`~coterie.attacks.finding.Attack` says. It uses what its threat model grants, and nothing else; what it finds,
it tells with a baseline for an attacker who saw nothing.
"""
