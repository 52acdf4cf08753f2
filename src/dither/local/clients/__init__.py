"""Clients: what runs on a person's own device. Nothing here needs more than Python itself."""

from dither.local.clients.base import Client, client_of

__all__ = ["Client", "client_of"]
