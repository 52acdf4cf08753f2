"""What a question costs: mechanisms, their loss, keys that come from the data, bounds that are searched for."""
