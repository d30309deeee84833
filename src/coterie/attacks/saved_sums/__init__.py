"""Differencing on saved sums: the clients whose updates a server's own records determine."""
