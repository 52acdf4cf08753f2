"""What is charged, to whom, and how a question passes through the ledger."""
