"""Cohorts over many rounds: fixed circles, selection policies, the ledger of participation, and their theory.

One secure aggregation hides every client in a sum. Differences of many sums can isolate single clients again. Here a
cohort is a union of fixed circles of at least T clients, so in any number of rounds a client is summed
with its whole circle or not at all (So et al. 2023, Multi-RoundSecAgg).

* :mod:`~coterie.cohorts.circles` and :mod:`~coterie.cohorts.roster`: circles, and a population that changes.
* :mod:`~coterie.cohorts.policies`: which clients take part in a round. Start with :data:`POLICIES`.
* :mod:`~coterie.cohorts.ledger` (server) and :mod:`~coterie.cohorts.memory` (client): the durable history, and the
  checks against it before a sum is opened.
* :mod:`~coterie.cohorts.theory`: skipped rounds, fairness and cohort sizes, computed in advance.
"""

from typing import TYPE_CHECKING

from coterie.cohorts.circles import random_circles
from coterie.cohorts.policies import POLICIES, MultiRound
from coterie.cohorts.roster import Client, Roster
from coterie.lazy_names import lazy_getattr

__all__ = ["POLICIES", "Client", "Ledger", "MultiRound", "Roster", "random_circles"]

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Ledger
else:  # importing the database of the ledger takes longer than all the rest of this package
    __getattr__ = lazy_getattr(__name__, {"Ledger": "coterie.cohorts.ledger"})
