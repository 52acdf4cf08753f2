"""Text to syntax tree, and every kind of node that the front door knows."""
