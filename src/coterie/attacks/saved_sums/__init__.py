"""Differencing on saved sums: which clients a server's own records determine."""
