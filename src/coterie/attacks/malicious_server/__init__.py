"""A malicious server against real clients: the result of each of its lies without the rule against it, and with it.

Start with :mod:`~coterie.attacks.malicious_server.server`, a server that may send anything. The lies are in
:mod:`~coterie.attacks.malicious_server.sessions` (within one session),
:mod:`~coterie.attacks.malicious_server.rewinding` (across a crash),
:mod:`~coterie.attacks.malicious_server.invitations` (in the terms that it offers) and
:mod:`~coterie.attacks.malicious_server.inconsistency` (in the models that it sends);
:mod:`~coterie.attacks.malicious_server.variants` varies them at random. Only
:mod:`~coterie.attacks.malicious_server.ablation` switches rules of the protocol off.
:mod:`~coterie.attacks.malicious_server.knowledge` computes what the server has learned in the end.
"""
