"""The engine of a run: it builds all parts from the settings, and plays the rounds.

Start with :mod:`~coterie.runs.engine.run`, which opens a folder, and :mod:`~coterie.runs.engine.loop`, whose method
``round`` has the steps of a round in order. :mod:`~coterie.runs.engine.build` makes the parts once, before anything is
written: the data and the model (:mod:`.federation`), the circles and the policy (:mod:`.cohorts`), the protection of a
sum (:mod:`.protection`). Rounds become one mean in :mod:`.cohort_rounds`; :mod:`.secure`, :mod:`.plain` and
:mod:`.additive` are three ways to compute it. :mod:`.stopping` ends a run early. When a run is resumed, :mod:`.history`
checks first that its files belong together.
"""
