"""Other systems, which do the same work as Coterie in the same run, for comparison.

:mod:`~coterie.bench.rivals.compare` plays rounds of Coterie and of a rival in turns, with the same cohorts, examples
and local training. It compares the models: a rival whose model differs did not do the work. A rival runs in processes
of its own (:mod:`~coterie.bench.rivals.process`). A new one is a module with its part of the work, and a row in
``SYSTEMS`` of ``compare``. :mod:`~coterie.bench.rivals.flower_secagg` is separate: it times Flower's SecAgg+ in this
process.
"""
