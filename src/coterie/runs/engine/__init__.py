"""The machinery of a run: it builds all parts from the settings, and plays the rounds."""
