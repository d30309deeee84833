"""Disaggregation: recover a hidden participation log, which clients were in which sum, from the sums themselves.

:mod:`~coterie.attacks.disaggregation.algebra` recovers the participation matrix by integer programs.
:mod:`.measure` then applies differencing (:mod:`coterie.attacks.differencing`) with the recovered matrix.
"""
