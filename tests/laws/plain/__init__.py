"""The differential test: answers with negligible noise, of which nothing is cut, equal those of plain DuckDB."""
