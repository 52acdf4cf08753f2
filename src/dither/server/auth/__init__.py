"""Who asks: tokens, sessions and what they allow."""
