"""Everything that shows a run to people: console, page, figures, words, and observers, called after each round."""
