"""The web page: server-rendered, one small script of others (htmx, 0BSD: see NOTICE) and one of ours, no build step."""
