"""What was asked before: the ledger as analysts and the owner may read it."""
