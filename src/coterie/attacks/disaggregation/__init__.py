"""Disaggregation: find out who was in which sum from the sums themselves, if the participation log is hidden."""
