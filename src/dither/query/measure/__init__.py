"""What an engine is asked to measure: whole numbers on grids, and how far one unit moves them."""
