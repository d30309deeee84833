"""Sections of the settings: their common base, settings that name an entry of a table, and checks for contradictions.

A section is a table of ``config.toml``: a class whose fields have defaults, bounds and a description. Start with
:mod:`~coterie.runs.sections.common`, the sections that every run has; an algorithm has its own section in its own file.
A setting whose values are the rows of a table (policies, topologies, models) declares the table, so a new row is
accepted at once. :mod:`~coterie.runs.sections.checks` finds settings that are valid alone and contradict each other.
"""
