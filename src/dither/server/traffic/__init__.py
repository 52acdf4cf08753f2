"""How much anybody may take: places, turns, rate limits and timeouts."""
