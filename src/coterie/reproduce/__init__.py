"""What the papers measured, measured again: declarations, a runner, and a folder for each kind of experiment."""
