"""RAPPOR: reports, decoding, association."""
