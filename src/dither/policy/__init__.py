"""The policy: what the owner states once, in one file; read, drafted, with advice on what is missing."""

from dither.policy.findings import Level, PolicyFinding
from dither.policy.policy import Policy, read_file

__all__ = ["Level", "Policy", "PolicyFinding", "read_file"]
