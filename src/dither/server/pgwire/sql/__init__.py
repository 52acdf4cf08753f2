"""What a statement is: words, kinds of statements, their routes, parameters."""
