"""Findings and how they look: one type, five renderers.

Whatever measures something returns :class:`~coterie.reports.findings.Findings`: headlines, tables, figures, pictures,
claims, a privacy card and remarks, as plain data. Start with :mod:`coterie.reports.findings`. The renderers are
:mod:`~coterie.reports.html` (one self-contained HTML file), :mod:`~coterie.reports.markdown` (a report beside its
figures) and ``coterie.cli.findings`` (a terminal). Two show findings in short: :mod:`~coterie.reports.text` (``print``)
and :mod:`~coterie.reports.notebook`.

Figures on pages are data for plotly.js (:mod:`~coterie.reports.charts`, rendered by :mod:`~coterie.reports.html`).
Figures beside Markdown are drawn by matplotlib (:mod:`~coterie.reports.plots`, :mod:`~coterie.reports.pictures`);
``charts`` says why there are two libraries. :mod:`~coterie.reports.intervals` has confidence intervals, and
:mod:`~coterie.reports.words` sizes, times and verdicts in words. Nothing here knows about federated learning.
"""
