"""The released table: what is printed, and what it is still good for."""
