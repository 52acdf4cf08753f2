"""One client's session: statements run, answers kept until they are read."""
