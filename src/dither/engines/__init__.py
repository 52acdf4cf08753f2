"""Engines: bounded plans to exact whole numbers; no noise, no analyst text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
