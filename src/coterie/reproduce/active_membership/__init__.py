"""Tables of active membership inference: FedAvg, Ditto and confined descent under the same attack."""
