"""The audit of a history: what any federated learning system's participation log gives away."""
