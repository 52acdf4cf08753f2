"""Means of numbers and vectors."""
