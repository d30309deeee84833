"""Trips of messages between a server and its nodes, to be timed."""
