"""Convergence on a strongly convex problem: the bounds of So et al. 2023 beside what happens.

:mod:`~coterie.reproduce.convergence.ridge` is the problem, :mod:`~coterie.reproduce.convergence.experiment` plays it
with each policy, and :mod:`~coterie.reproduce.convergence.report` compares.
"""
