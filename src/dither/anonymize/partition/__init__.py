"""Mondrian: a table cut into ever smaller parts."""
