"""Disaggregation: find out who was in which sum from the sums themselves, if the participation log is hidden.

:mod:`~coterie.attacks.disaggregation.algebra` recovers the participation matrix by integer programs.
:mod:`.measure` then applies differencing (:mod:`coterie.attacks.differencing`) with the recovered matrix.
"""
