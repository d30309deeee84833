"""Everything that shows a run to people: console, page, figures, words, and the observers that are called after each round."""
