"""Before the first round: a session's parameters, and a population's trade-offs."""
