"""Where the clients of a round are trained: in worker processes, or many together as one computation."""
