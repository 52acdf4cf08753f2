"""Everything that dither claims, audited in one go."""
