"""Anonymised tables: k-anonymity and its kin.

What is released this way has no privacy loss that could be stated: whoever knows enough may learn anything from it. The
concept page "Why k-anonymity is not enough" shows how. For answers with a guarantee, ask a curator.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
