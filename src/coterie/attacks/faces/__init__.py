"""Model inversion: reconstruct a person's face from a model that has a class for that person."""
