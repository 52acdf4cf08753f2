"""The audit of questions on made-up tables of a policy's shape."""
