"""A first policy, from the catalogue alone."""
