"""The curator: the only place where data and budget meet."""

import logging

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# without a handler Python prints what is logged: to the terminal of whoever asks
logging.getLogger("dither").addHandler(logging.NullHandler())
