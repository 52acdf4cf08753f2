"""Ranges and quantiles of an ordered domain."""
