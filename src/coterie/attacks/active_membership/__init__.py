"""Active membership inference: malicious participants increase the loss of some records in the models of all.

If honest participants decrease the loss of a record again, they train on it (Nasr et al. 2019; CGD, Section 5). FedAvg,
Ditto and confined descent are attacked in the same way; with FedAvg, all participants download the common model.

Start with :mod:`.measure`: it tunes the strength on FedAvg, then attacks every method in several trials. :mod:`.trial`
is one of them. :mod:`.methods` defines the methods and what attackers see in each, :mod:`.records` deals the examples,
:mod:`.tasks` infers membership from a model's answers, and :mod:`.statistics` combines the trials for :mod:`.report`.
"""
