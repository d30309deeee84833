"""Executors of the clients' training: in worker processes, or many together as one computation."""
