"""Attacks on federated learning, each without its defence and with it.

Every attack is a folder: ``settings``, ``measure`` (the computation) and ``report``. Its threat model is in
:mod:`coterie.attacks.threats`; the attack uses nothing else, and its results have a baseline for an attacker who saw
nothing.

Start with :mod:`coterie.attacks.federation`. It deals data to clients once, plays any strategy of
:mod:`coterie.training` in the clear, and returns what an adversary sees of every round. :mod:`coterie.attacks.session`
plays the real protocol over the same updates and checks that it reveals the same mean. Then read one attack;
``differencing`` is the simplest: the sums of many rounds (``measure``), least squares (``algebra``), the verdict
(``report``). ``malicious_server`` is different: its server breaks the protocol, so it talks to real clients from the
start.
"""
