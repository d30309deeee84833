"""Planning before the first round: the parameters of a session, and the trade-offs of many rounds.

There are two questions, and ``coterie plan`` answers both:

* *One session.* Which topology, degree and threshold meet a threat model, with which proven failure bounds, and at
  which cost? Start with :func:`coterie.planning.session.recommend`. The number of colluders to plan for comes from
  :mod:`~coterie.planning.collusion`, bytes and operations from :mod:`~coterie.planning.costs`, and
  :mod:`~coterie.planning.two_trips` compares the two protocols.
* *Many rounds.* What does each multi-round privacy T cost for a population, and which T is recommended? See
  :func:`coterie.planning.population.plan_population`.

The bounds themselves are in :mod:`coterie.graphs` and :mod:`coterie.cohorts.theory`; nothing here is random except
short seeded simulations of fairness.
"""
