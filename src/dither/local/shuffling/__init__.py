"""The shuffle model: reports that hide each other."""
