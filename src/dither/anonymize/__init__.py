"""Anonymised tables: k-anonymity and its kin. They claim no privacy loss; see the concepts for why that matters."""
