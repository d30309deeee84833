"""Carriers of bytes, and nothing else: in one process (:mod:`~coterie.transports.memory`), with faults as data."""
