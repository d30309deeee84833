"""What sparse graphs save: CCESA's rule for p and t, the time of real sessions, and how operations grow.

:mod:`~coterie.reproduce.graph_costs.sessions` times sessions on two graphs in turns,
:mod:`~coterie.reproduce.graph_costs.operations` counts what sessions of any size need, and
:mod:`~coterie.reproduce.graph_costs.report` shows both beside what the paper prints.
"""
