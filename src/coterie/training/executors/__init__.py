"""Executors: they carry out the training tasks of a round.

:func:`~coterie.training.executors.processes.make_trainer` returns a trainer: start there. A trainer runs the tasks in
worker processes, one by one in this process, or many together as one vectorised computation
(:mod:`~coterie.training.executors.vectorised`). Results are the same bits in any number of processes. The vectorised
executor rounds differently, so a run records which executor it used.
"""
