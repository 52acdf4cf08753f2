"""The PostgreSQL protocol itself: messages, types, signing in, errors."""
