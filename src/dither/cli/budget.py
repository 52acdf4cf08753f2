"""``dither budget``: what was spent and what is left."""

from __future__ import annotations

from dither.cli.looking import looking
from dither.cli.options import DEFAULT_POLICY, Analyst, PolicyFile
from dither.cli.screen import console, show_budget
from dither.curator.owner import OWNER


def budget(analyst: Analyst = OWNER, policy: PolicyFile = DEFAULT_POLICY) -> None:
    """Show what was spent and what is left.

    Every account for the owner; with --as, what that analyst may know.
    """
    from dither.curator import records

    with looking(policy) as curator:
        show_budget(curator.budget(analyst), console())
        if not records.is_begun(curator.policy):
            console().print("nothing was asked yet: there is no ledger")
