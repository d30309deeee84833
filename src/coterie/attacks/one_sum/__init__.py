"""An audit of one secure sum as a private mechanism: what it reveals about a client (Ngo et al. 2024).

The attacker knows two updates of a client and decides which of them is in a sum (:mod:`.measure`). Its success rate
gives a lower bound on epsilon (:mod:`.bounds`). :mod:`.population` makes the updates of the other clients.
"""
