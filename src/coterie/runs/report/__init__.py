"""The presentation of a run: console, page, figures, texts, and observers, which are called after each round.

An :class:`~coterie.runs.report.observers.Observer` is called when a run begins, after each round and at the end, and
may end it with a reason. The console and the trackers are observers. :mod:`~coterie.runs.report.page` writes
``report.html`` from the summary, the records and the forecasts. A figure of the page is a row of the table in
:mod:`~coterie.runs.report.figures`. Sentences that console and page share are in
:mod:`~coterie.runs.report.words`.
"""
