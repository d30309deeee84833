"""Values that describe a run: the record and the costs of a round, the promise, the yardstick, and the summary.

They are plain data, and some can describe themselves in words. The engine makes them, the storage writes them, and the
report shows them. Start with :class:`~coterie.runs.records.record.RoundRecord`: it is a line of ``metrics.jsonl``, and
an algorithm may add columns to it.
"""
