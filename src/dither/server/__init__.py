"""The server: HTTP, PostgreSQL's protocol and a web page in front of a curator. It decides nothing.

Everything here speaks to the curator through ``service.Service``, which knows who asks and how much at once. What is
private, what it costs and whether it fits is said by the curator alone.
"""
