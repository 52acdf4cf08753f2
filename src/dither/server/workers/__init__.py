"""More processes for new questions."""
