"""One secure sum, audited as if it were a private mechanism: what it says about a client (Ngo et al. 2024)."""
