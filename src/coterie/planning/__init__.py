"""Planning before the first round: the parameters of a session, the trade-offs of many rounds, a whole deployment.

There are three questions, and ``coterie plan`` answers all of them:

* *One session.* Which topology, degree and threshold meet a threat model, with which proven failure bounds, and at
  which cost? Start with :func:`coterie.planning.session.recommend`. The number of colluders to plan for comes from
  :mod:`~coterie.planning.collusion`, bytes and operations from :mod:`~coterie.planning.costs`, and
  :mod:`~coterie.planning.two_trips` compares the two protocols.
* *Many rounds.* What does each multi-round privacy T cost for a population, and which T is recommended? See
  :func:`coterie.planning.population.plan_population`.
* *A whole deployment.* Which T, sessions and noise, and what do they promise? See
  :func:`coterie.planning.deployment.plan_deployment`. :mod:`~coterie.planning.threat_model` states the promise in plain
  words.

The bounds themselves are in :mod:`coterie.graphs` and :mod:`coterie.cohorts.theory`; nothing here is random except
short seeded simulations of fairness.
"""
