"""Ledgers in files: opening, durability, rollback, tampering, crashes."""
