"""Reconstruction of single updates from the sums of many rounds."""
