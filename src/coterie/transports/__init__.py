"""Carriers of messages: in one process, over Flower and over NVFlare.

A carrier moves messages between a :class:`coterie.rounds.Round` and :class:`coterie.rounds.Member` objects. It never
reads them, and decides nothing about privacy. Start with :mod:`~coterie.transports.memory`, a complete carrier in one
process. It can inject the faults of a network that :mod:`~coterie.transports.faults` describes as data with a seed.
``flower`` and ``nvflare`` adapt the types of an engine to :mod:`coterie.deployment`, and do not know each other.
"""
