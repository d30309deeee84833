"""Disaggregation: recover a hidden participation log, which clients were in which sum, from the sums themselves.

Start with :mod:`~coterie.attacks.disaggregation.algebra`, which recovers the participation matrix by integer programs
(Lam et al. 2021). :mod:`.measure` trains real clients under each selection, hides the log, recovers it, and applies
differencing (:mod:`coterie.attacks.differencing`) with the recovered matrix. :mod:`.report` says how much of the log
was recovered, and what that reveals about updates.
"""
