"""What one sum says: a single secure sum, audited as if it were a private mechanism (Ngo et al. 2024)."""
