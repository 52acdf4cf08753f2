"""What is in the ledger's tables and how it gets there: schema, rows, rules of payment, seals, one writer."""
