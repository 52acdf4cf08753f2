"""dither: differential privacy with exact noise, proven losses and a budget that can't be overspent.

The names below are the whole public surface; everything else can be reached through its package. Each is loaded when it
is first used, so that a survey's client, which needs nothing but Python, starts at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
