"""Generalisation hierarchies: tables of levels, and rules."""
