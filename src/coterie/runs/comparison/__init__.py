"""Runs beside each other and beside baselines: scores over rounds, what they took, and what they protect.

Start with :func:`coterie.runs.comparison.comparison.compare`. ``entries`` reads the folders of runs, ``baselines``
reads CSV files, and ``comparison`` decides which of them are comparable and describes them.
"""
