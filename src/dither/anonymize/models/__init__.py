"""Privacy models, one family a file."""
