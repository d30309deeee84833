"""Other systems, driven to do the same work as ours in the same run."""
