"""Membership inference on what is seen of a client, and of the sum it is in (Choi et al. 2020, Tables 5.2 and A.3)."""
