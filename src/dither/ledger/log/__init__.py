"""The log read again: replay and verification, format 1, and the way from it to format 2."""
