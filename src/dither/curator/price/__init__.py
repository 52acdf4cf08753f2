"""What a question costs, before anything is spent or read."""
