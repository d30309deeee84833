"""The demonstration: rounds that are each secure, and what the sums of many of them give away together."""
