"""Advice on a policy, and on the data it speaks of."""
