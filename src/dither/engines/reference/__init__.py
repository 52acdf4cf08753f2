"""The reference engine: plain Python, slow and obviously right; an oracle for tests."""
