"""Comparison of runs and baselines: scores over rounds, costs and privacy.

Start with :func:`coterie.runs.comparison.comparison.compare`. ``entries`` reads the folders of runs, ``baselines``
reads CSV files, ``scores`` has the numbers that are compared and which direction is better, and ``comparison`` decides
which entries are comparable and describes them.
"""
