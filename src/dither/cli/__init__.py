"""The command line: one file per command; every command says what it costs before it shows an answer."""
