"""The demonstration: every round is secure, but the sums of many rounds together reveal single updates.

It combines two other attacks. :mod:`coterie.attacks.differencing` solves for the update of one client, and
:mod:`coterie.attacks.inversion` turns it into pictures. The attack runs on random cohorts and on circles of 2 and 4.
Start with :mod:`~coterie.attacks.demo.measure`. :mod:`~coterie.attacks.demo.report` shows the client's pictures beside
the reconstructed ones; :mod:`~coterie.attacks.demo.settings` has the sizes.
"""
