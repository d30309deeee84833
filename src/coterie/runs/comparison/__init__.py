"""Comparison of runs and baselines: scores over rounds, costs and privacy.

Start with :func:`coterie.runs.comparison.comparison.compare`. ``entries`` reads the folders of runs, ``baselines``
reads CSV files, and ``comparison`` decides which of them are comparable and describes them.
"""
