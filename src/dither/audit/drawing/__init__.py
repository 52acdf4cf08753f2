"""Outputs drawn from what is audited, by one process or several."""
