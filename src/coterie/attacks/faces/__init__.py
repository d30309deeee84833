"""Model inversion: the face that a model has learnt for a person, out of the model."""
