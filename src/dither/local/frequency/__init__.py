"""How often each value of a public list occurs."""
