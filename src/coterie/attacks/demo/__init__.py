"""The demonstration: every round is secure, but the sums of many rounds together reveal single updates."""
