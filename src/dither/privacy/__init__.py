"""Who is protected, how far they can move an answer, what that costs: the loss algebra."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
