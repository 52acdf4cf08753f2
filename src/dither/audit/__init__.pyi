from . import zoo as zoo
from .claims import Claim as Claim, claim_of as claim_of
from .drawing.draws import Batched as Batched
from .lower_bound import lower_bound as lower_bound
from .queries.audit import QueryAudit as QueryAudit, audit_query as audit_query
from .queries.neighbour_test import NeighbourTest as NeighbourTest
from .queries.neighbours import (
    Breach as Breach,
    Fault as Fault,
    Neighbours as Neighbours,
    breaches as breaches,
    check_question as check_question,
    difference as difference,
    neighbour_of as neighbour_of,
    reading as reading,
)
from .report.write import write_report as write_report
from .result import Assumption as Assumption, LowerBound as LowerBound, Sketch as Sketch, Verdict as Verdict
from .search import (
    neighbouring_tables as neighbouring_tables,
    query_patterns as query_patterns,
    search as search,
    search_tables as search_tables,
)
from .suite.run import Part as Part, Row as Row, audit_everything as audit_everything
