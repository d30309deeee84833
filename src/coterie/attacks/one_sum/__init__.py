"""An audit of one secure sum as a private mechanism: what it reveals about a client (Ngo et al. 2024)."""
