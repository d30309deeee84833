"""Differencing on saved sums: the clients whose updates the records of a server determine.

:mod:`~coterie.attacks.saved_sums.measure` reads the sums and the log with limits on memory, because the files may come
from anyone, and solves for updates as :mod:`coterie.attacks.differencing` does. Which clients the sums determine is
computed in exact arithmetic, by the audit. :mod:`~coterie.attacks.saved_sums.report` names them, with the round since
when, and says whether updates were constant enough for useful estimates.
"""
