"""Differencing over rounds: individual updates recovered from the sums of many rounds and the participation matrix.

Start with :mod:`~coterie.attacks.differencing.algebra`: least squares, its error, and the bound that circles give.
:mod:`.measure` trains real clients, observes a window of rounds under every policy, and compares the result with what
the clients sent. :mod:`coterie.attacks.saved_sums` does the same with the sums that a server saved.
"""
