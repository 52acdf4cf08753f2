"""Attacks on releases of data, on data that they make themselves: against exact releases and against private ones.

Each attack is a module with a function of its name and the attacker's tools: ``from dither.attacks.linkage import
linkage, link``. ``dither.attacks.registry`` has them all by name.
"""

from dither.attacks.base import Attack, Outcome, Published, Release, Score

__all__ = ["Attack", "Outcome", "Published", "Release", "Score"]
