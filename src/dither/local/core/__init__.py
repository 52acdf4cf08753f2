"""What all protocols share: reports, coins, losses, columns of values."""
