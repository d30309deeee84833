"""Other systems, which do the same work as Coterie in the same run, for comparison."""
