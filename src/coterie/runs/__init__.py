"""A training run in a folder: its settings, its loop, its records and its report."""
