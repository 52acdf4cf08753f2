"""The client of a server, as if the curator were here: it loads nothing of what answers questions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
