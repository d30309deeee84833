"""What a history gives away: an audit of any federated learning system's participation log."""
