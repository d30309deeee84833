"""Gradient inversion: reconstruct the examples that an update was computed from."""
