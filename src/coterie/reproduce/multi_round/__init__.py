"""Client selection over many rounds: the privacy, cardinality and fairness of the schemes of So et al.

:mod:`~coterie.reproduce.multi_round.measure` selects cohorts for many rounds and measures what the history reveals;
nothing is trained. :mod:`.outcomes` collects the trials of a scheme, and :mod:`.report` compares them with the values
that the authors published, and explains the differences.
"""
