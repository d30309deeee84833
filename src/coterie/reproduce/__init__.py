"""Reproductions of the papers' experiments: ``coterie reproduce``.

A declaration (``papers/NAME.toml``, read by :mod:`~coterie.reproduce.declarations`) contains a kind of experiment, its
settings, its sizes and the numbers of the paper. A kind is a class with settings, ``measure`` for one job, and
``report``; start with its base in :mod:`coterie.reproduce.experiment`, then read :mod:`coterie.reproduce.reliability`,
which is complete in one file. :mod:`~coterie.reproduce.runner` runs the jobs in worker processes, appends each finished
job to a journal, and writes the report as Markdown with figures and ``results.json``.

Experiments on attacks measure with the attack's own code and show its own tables; they add trials, the paper's numbers
and judged claims. Experiments on training play the runs of ``coterie run``. To add an experiment of an existing kind,
write a TOML file. To add a kind, write one file, and its row in ``KINDS`` of ``declarations``.
"""
