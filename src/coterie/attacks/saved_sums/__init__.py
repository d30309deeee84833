"""Differencing on saved sums: the clients whose updates the records of a server determine.

:mod:`~coterie.attacks.saved_sums.measure` reads the sums and the log with limits on memory, because the files may come
from anyone, and solves for updates as :mod:`coterie.attacks.differencing` does.
"""
