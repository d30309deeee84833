"""Active membership inference: malicious participants increase the loss of some records for everybody.

If honest participants decrease the loss of a record again, they train on it (Nasr et al. 2019; CGD, Section 5). FedAvg,
Ditto and confined descent are attacked in the same way; with FedAvg, everybody downloads the common model.
"""
