"""Values that describe a run: the record of a round, the promise, the measure of quality, and the summary of all rounds."""
