from .attributes import Attribute as Attribute, AxisKind as AxisKind, Role as Role
from .configuration import Configuration as Configuration
from .hierarchy.hierarchies import Hierarchy as Hierarchy
from .lattice.full_domain import full_domain as full_domain
from .models.catalogue import (
    BetaLikeness as BetaLikeness,
    DeltaDisclosure as DeltaDisclosure,
    DistinctDiversity as DistinctDiversity,
    EntropyDiversity as EntropyDiversity,
    KAnonymity as KAnonymity,
    KMap as KMap,
    RecursiveDiversity as RecursiveDiversity,
    TCloseness as TCloseness,
)
from .partition.mondrian import mondrian as mondrian
from .releases.release import Release as Release
from .risks.risk import risk as risk
from .verifier.verify import verify as verify
