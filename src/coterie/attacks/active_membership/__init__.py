"""Active membership inference: malicious participants increase the loss of some records in the models of all.

If honest participants decrease the loss of a record again, they train on it (Nasr et al. 2019; CGD, Section 5). FedAvg,
Ditto and confined descent are attacked in the same way; with FedAvg, all participants download the common model.
"""
