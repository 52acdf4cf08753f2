"""The shadow PostgreSQL, which answers what isn't about data."""
