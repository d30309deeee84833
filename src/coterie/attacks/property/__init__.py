"""Property inference over rounds: find the clients that have a kind of data, although their updates change."""
