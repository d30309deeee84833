"""Data sets, readers of the usual files, and ways of dividing examples among clients."""
