"""The report of an audit: Markdown, a page and pictures."""
