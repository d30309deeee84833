"""Benchmarks: the cost of secure aggregation here, compared with the machine's limits and with other systems.

Each benchmark has a class in :mod:`~coterie.bench.settings` and a module that measures. Start with
:mod:`~coterie.bench.secagg` (one session, and the same work on Flower's SecAgg+); its work is described in
:mod:`~coterie.bench.workload`. The others are :mod:`~coterie.bench.scale`, :mod:`~coterie.bench.two_trips`,
:mod:`~coterie.bench.training`, :mod:`~coterie.bench.confined` with :mod:`~coterie.bench.confined_grid`,
:mod:`~coterie.bench.flower`, :mod:`~coterie.bench.audit` and :mod:`~coterie.bench.ledger`. Measurements that several of
them share, such as the limits of the machine, are in :mod:`~coterie.bench.machine`, and other systems in
:mod:`~coterie.bench.rivals`.

Every result is checked before its cost is reported. Ratios of numbers from one run are meaningful on any machine,
milliseconds only on this one. The commands ``coterie bench ...`` print the results.
"""
