"""Everything that shows a run to people: console, page, figures, words, and observers, called after each round.

An :class:`~coterie.runs.report.observers.Observer` is called when a run begins, after each round and at the end, and
may end it with a reason. The console and the trackers are observers. :mod:`~coterie.runs.report.page` writes
``report.html`` from the summary, the records and the forecasts. A figure of the page is a row of the table in
:mod:`~coterie.runs.report.figures`. Sentences that both the console and the page have are in
:mod:`~coterie.runs.report.words`.
"""
