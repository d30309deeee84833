"""The folder of a run: what is in it, how it is written, and the lock that one process holds on it."""
