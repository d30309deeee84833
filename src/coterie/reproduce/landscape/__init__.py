"""The landscape of the loss around confined models, in the plane that shows most of how they differ."""
