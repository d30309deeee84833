"""A training run in a folder: settings in, a trained model, records and a report out.

How a run works: the settings (``settings``) name an algorithm (``algorithms``). From them the engine (``engine``)
builds all parts before anything is written. Then it plays rounds: select, train, aggregate, apply, evaluate, record,
and call the observers, which may end the run. After each round the folder (``storage``) has all that is needed to
continue; in the end the run writes a page (``report``). ``records`` are the values that these packages exchange, and
``sections`` the parts of the settings. The packages are layers: engine, report, storage, settings, algorithms, records,
sections; each imports only those after it. Above them, ``comparison`` shows several runs beside each other. Only
``engine`` loads torch when it is imported.

Start with :meth:`coterie.runs.engine.loop.Engine.run`, the loop, then :class:`~coterie.runs.engine.run.TrainingRun`,
which begins and resumes runs, and :class:`~coterie.runs.algorithms.base.Algorithm`, the interface of an algorithm.
"""
