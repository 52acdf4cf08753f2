"""Broken mechanisms, each with a right twin: what an auditor has to catch, and what to leave alone.

Broken ones are written in numpy, naively, as they are found in papers, notes and code; right twins are dither's own
mechanisms wherever there is one. Nothing here may be used to protect data.
"""

from dither.audit.zoo.catalogue import broken, right, specimens
from dither.audit.zoo.specimen import Specimen, audit_specimen

__all__ = ["Specimen", "audit_specimen", "broken", "right", "specimens"]
