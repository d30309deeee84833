"""Secure aggregation in two trips: keys are made in advance, and survivors are confirmed only if needed.

**How it works.** Every client stores a few signed one-time keys (prekeys) at the server. An invitation holds the
terms and one prekey of each client, together called the *book*; its digest D is bound into every key and signature. A
client checks the book, agrees on a mask with every other client in it, even if some are lost later, and sends in one
message its masked input and, sealed for each other client, shares of its secrets: the seed of its self mask, and one
key for each *other circle*, which encrypts the seeds of the masks that it has in common with that circle's members.
(Trip 1.)

The server announces which clients contributed. If few are missing, clients reveal at once, for every aggregated client,
their shares of its self seed and of its keys for circles that are not aggregated. (Trip 2.) If many are missing, they
sign the announcement first, and reveal when a quorum's signatures on it are shown. (Trip 3.) The masks among those
aggregated cancel; those with lost circles, and the self masks, are computed and removed.

**Why a malicious server learns one sum.** Let n clients, at most c of them colluders, q = floor((n + c) / 2) + 1, t
>= q shares open a secret, M = max(minimum, c + 2).

* Under D, a client only ever answers for one survivor list. Two opened secrets have more than half of the honest
  holders each, hence one in common, who answered for one list.
* If the self seeds of i and k are both open, the mask between them is not: the common holder of b_i and of the key
  that i has for k's circle would have had k's circle both inside and outside the sum. So at most one sum per D comes
  out.
* Masks inside a circle are never shared, so the sum is over whole circles.
* Every honest client outside the sum was called lost by a majority of honest holders, each of whom saw at most n -
  |A| lost. With 2 |A| >= n + M - 1 at least M - c honest clients are in the sum. With fewer, a quorum of signatures
  on one list takes the place of this bound.

**What the direct path costs.** Until a client sees q signatures on its list, it knows that the sum is over whole
circles with at least M - c honest members, but not exactly which.

Coordinator and members of :mod:`coterie.rounds` play both protocols; :mod:`coterie.secagg.protocols` chooses.

Read :mod:`~coterie.secagg.prekeys.book` first, then :mod:`~coterie.secagg.prekeys.client` and
:mod:`~coterie.secagg.prekeys.server`; :mod:`~coterie.secagg.prekeys.rules` lists the checks of a client.
"""

from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.client import Contributed, Done, Invited, Signed, accept, issue
from coterie.secagg.prekeys.messages import Prekey
from coterie.secagg.prekeys.server import PrekeyServer

__all__ = ["Contributed", "Done", "Invited", "Prekey", "PrekeyBook", "PrekeyServer", "Signed", "accept", "issue"]
