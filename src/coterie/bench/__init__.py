"""Benchmarks: the cost of secure aggregation here, compared with the machine's limits and with other systems.

Each benchmark has a class in :mod:`~coterie.bench.settings` and a module that measures: :mod:`~coterie.bench.secagg`
(one session, and the same work on Flower's SecAgg+), :mod:`~coterie.bench.training`, :mod:`~coterie.bench.confined` and
:mod:`~coterie.bench.flower`. Every result is checked before its cost is reported. Ratios of numbers from one run are
meaningful on any machine, milliseconds only on this one.
"""
