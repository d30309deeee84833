"""Differencing over rounds: sums of many rounds, and who was in each, taken apart into single updates."""
