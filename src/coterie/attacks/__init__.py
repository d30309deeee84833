"""Attacks on federated learning, each without its defence and with it.

Every attack is a folder: its settings with the threat model, ``measure`` (the computation), and ``report``. An attack
uses what its threat model grants and nothing else, and its results have a baseline for an attacker who saw nothing.

Start with :mod:`coterie.attacks.federation`: data dealt once, any strategy of :mod:`coterie.training` played in the
clear, and what an adversary sees of every round. :mod:`coterie.attacks.session` plays the real protocol over the same
updates, to show that it reveals the same. Then read one attack; ``differencing`` is the shortest way in: sums of many
rounds (``measure``), least squares (``algebra``), the verdict (``report``). ``malicious_server`` is different: its
server breaks the protocol, so that it talks to real clients from the start.
"""
