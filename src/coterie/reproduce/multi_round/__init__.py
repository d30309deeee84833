"""Client selection over many rounds: the privacy, cardinality and fairness of the schemes of So et al."""
