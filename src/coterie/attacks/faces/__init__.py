"""Model inversion: reconstruct a person's face from a model that has a class for that person.

All of the attack is in :mod:`~coterie.attacks.faces.measure`: it trains a softmax regression over clients that are one
person each, and inverts what a client sends, what the server sees under secure aggregation, and the global model.
:mod:`~coterie.attacks.faces.report` counts the people who are recognised from each of them.
"""
