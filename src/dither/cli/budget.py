"""``dither budget``: what was spent and what is left."""

from __future__ import annotations

from dither.cli.options import DEFAULT_POLICY, Analyst, PolicyFile
from dither.cli.read_only_curator import looking
from dither.cli.screen import console, show_budget
from dither.curator import OWNER


def budget(analyst: Analyst = OWNER, policy: PolicyFile = DEFAULT_POLICY) -> None:
    """Show what was spent and what is left.

    Every account for the owner; with --as, what that analyst may know.
    """
    from dither.curator.past import records

    with looking(policy) as curator:
        show_budget(curator.budget(analyst), console())
        if curator.spent_by_levels:
            console().print(
                "[dim]spent is read by levels, for a δ of its own, as this ledger began with dither 0.1.0; together "
                "all answers keep what the budget states[/dim]"
            )
        if not records.is_begun(curator.policy):
            console().print("nothing was asked yet: there is no ledger")
