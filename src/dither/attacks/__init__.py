"""Attacks on releases of data that they make up themselves: on exact ones, and on private ones.

Each attack is a module with a function of its name and the attacker's tools: ``from dither.attacks.linkage import
linkage, link``. ``dither.attacks.registry`` has them all by name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
