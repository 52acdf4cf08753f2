"""How often texts of an open domain occur: sketches, fragments, heavy hitters."""
