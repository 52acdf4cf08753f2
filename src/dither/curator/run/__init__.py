"""The run of a question after its charge."""
