"""Tables of confined descent beside what it is compared with, and what an observer of its sums has.

Start with :mod:`~coterie.reproduce.confined_table.settings`: a row is a way to learn, a table has the rows of one data
set or grid. :mod:`.measure` runs one trial of a row, in numpy over a grid (:mod:`.grid`) or as a training run.
:mod:`.outcomes` collects the trials of a row, and :mod:`.report` compares them with the values of the paper.
"""
