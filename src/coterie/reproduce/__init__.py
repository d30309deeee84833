"""The papers' measurements, made again: declarations, a runner, and a folder for each kind of experiment."""
