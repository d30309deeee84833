"""Disaggregation: who was in which sum, found from the sums themselves, where the log is hidden."""
