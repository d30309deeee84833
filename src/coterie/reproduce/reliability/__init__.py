"""Reliability of rounds on sparse graphs, by the rule of Choi et al. and by ours."""
