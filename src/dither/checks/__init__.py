"""Public conformance suites: one contract for dither's mechanisms, protocols, ledgers, engines, and yours."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
