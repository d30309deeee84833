"""Values that describe a run: the record and the costs of a round, the promise, the yardstick, and the summary.

They are plain data without behaviour but words. The engine makes them, the storage writes them, and the report shows
them. Start with :class:`~coterie.runs.records.record.RoundRecord`, which is a line of ``metrics.jsonl``; an algorithm
may add columns to it. The summary follows from the records alone.
"""
