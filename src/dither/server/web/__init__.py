"""The web page: server-rendered, two small scripts (htmx is 0BSD: see NOTICE), no build step."""
