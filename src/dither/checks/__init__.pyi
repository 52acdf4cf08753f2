from .engine import check_engine as check_engine
from .ledger import check_ledger as check_ledger
from .mechanism import Finding as Finding, Report as Report, check_mechanism as check_mechanism
from .randomizer import check_randomizer as check_randomizer
from .statistics import chi_square as chi_square, largest_gap as largest_gap, proportion_at_most as proportion_at_most
