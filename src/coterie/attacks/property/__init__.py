"""Property inference over rounds: which client has a kind of data, although its updates change."""
