"""Audit: evidence, measured on running code, that what is claimed about privacy holds.

What needs a database is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# modules of the same name: once one is loaded it would stand here instead of its function
from dither.audit.lower_bound import lower_bound as lower_bound  # noqa: E402
from dither.audit.search import search as search  # noqa: E402
