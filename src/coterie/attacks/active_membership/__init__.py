"""Active membership inference: malicious participants make everybody climb the loss of some records, and look again.

Whose loss honest participants bring down again was trained on (Nasr et al. 2019; CGD, Section 5). FedAvg, Ditto and
confined descent under the same attack, with a baseline of FedAvg in which everybody downloads the common model.
"""

from coterie.attacks.active_membership.measure import PRESETS, ActiveMembership

__all__ = ["PRESETS", "ActiveMembership"]
