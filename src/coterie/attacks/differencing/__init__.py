"""Differencing over rounds: individual updates recovered from the sums of many rounds and the participation matrix."""
