"""The web page: server-rendered, one small script of others (htmx) and one of ours, no build step."""
