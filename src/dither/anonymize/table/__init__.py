"""Tables as whole numbers: read, encoded, grouped into classes."""
