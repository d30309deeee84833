"""The settings of a run as a whole: all sections, their TOML form, and the settings that may change later.

Start with :class:`~coterie.runs.settings.config.RunConfig`. It has the common sections and those of all algorithms in
the table :data:`coterie.runs.algorithms.ALGORITHMS`. :mod:`~coterie.runs.settings.toml` reads it from a file and from
``--set``, and reports all mistakes at once. :mod:`~coterie.runs.settings.changes` lists what a resumed run may change.
"""
