"""Local privacy: values are randomised before they leave their owner; nobody is trusted.

``dither.local.clients`` needs nothing but Python and runs where the values are; everything else is loaded when it is
first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
