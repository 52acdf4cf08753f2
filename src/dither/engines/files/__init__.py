"""The owner's files before an engine reads them: which they are, whether they are clean, copies of them."""
