"""How messages travel: in one process (:mod:`~coterie.transports.memory`), with faults as data."""
