"""An audit of one secure sum as a private mechanism: what it reveals about a client (Ngo et al. 2024).

The attacker knows two updates of a client and decides which of them is in a sum. Its success rate gives a lower bound
on epsilon. Start with :mod:`.measure`, which audits sums without noise and with it. :mod:`.population` makes the
updates: of clients that the attacker simulates, and of those that sums are drawn from. :mod:`.bounds` computes the
lower bounds, and :mod:`.report` compares them with the epsilon that noise guarantees.
"""
