"""A server that lies to the product's real clients: what each lie obtains without the rule against it, and with it.

Read :mod:`~coterie.attacks.malicious_server.server` first, the server that may say anything; then the lies, which are
:mod:`~coterie.attacks.malicious_server.sessions` (within one session),
:mod:`~coterie.attacks.malicious_server.rewinding` (across a crash),
:mod:`~coterie.attacks.malicious_server.invitations` (by the terms that are offered) and
:mod:`~coterie.attacks.malicious_server.inconsistency` (by the models that are handed out). Rules of the protocol are
taken out by :mod:`~coterie.attacks.malicious_server.ablation`, and by nothing else.
"""
