"""The durable record of everything that was spent: reserve before reading data, record before releasing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
