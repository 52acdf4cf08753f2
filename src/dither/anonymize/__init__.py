"""Anonymised tables: k-anonymity and its kin.

What is released this way has no privacy loss that could be stated: whoever knows enough may learn anything from it. The
concept page "Why k-anonymity is not enough" shows how. For answers with a guarantee, ask a curator.
"""

from dither.anonymize.attributes import Attribute, Configuration, Kind, Role
from dither.anonymize.hierarchies import Hierarchy
from dither.anonymize.lattice import full_domain
from dither.anonymize.models import (
    BetaLikeness,
    DeltaDisclosure,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    RecursiveDiversity,
    TCloseness,
)
from dither.anonymize.mondrian import mondrian
from dither.anonymize.release import Release
from dither.anonymize.risk import risk
from dither.anonymize.verify import verify

__all__ = [
    "Attribute",
    "BetaLikeness",
    "Configuration",
    "DeltaDisclosure",
    "DistinctDiversity",
    "EntropyDiversity",
    "Hierarchy",
    "KAnonymity",
    "KMap",
    "Kind",
    "RecursiveDiversity",
    "Release",
    "Role",
    "TCloseness",
    "full_domain",
    "mondrian",
    "risk",
    "verify",
]
