"""Values that describe a run: the record and the costs of a round, the promise, the yardstick, and the summary."""
