"""The policy: what the owner states once, in one file; reading it, writing a first one, advice on what is missing."""

from dither.curator.policy.findings import Finding, Level
from dither.curator.policy.policy import Policy, read_file

__all__ = ["Finding", "Level", "Policy", "read_file"]
