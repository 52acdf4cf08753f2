"""The plan of a question and its normal form."""
