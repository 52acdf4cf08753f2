"""Privacy loss distributions: a loss as a distribution on a lattice, and its certified compositions."""
