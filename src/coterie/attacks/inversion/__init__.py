"""Inversion of an update into the examples behind it."""
