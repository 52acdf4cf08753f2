"""From counts to a bound that holds with a stated confidence."""
