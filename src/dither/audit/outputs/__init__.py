"""Outputs of any shape as columns that events are made of."""
