"""A curator for commands that only look: nothing is made, nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither.curator import Curator


@contextmanager
def looking(policy: Path) -> Iterator[Curator]:
    """The policy's ledger and the names of its data; where no ledger was begun, none is made, and nothing was spent."""
    from dither.curator import Curator, drafts
    from dither.curator.past import records
    from dither.policy import Policy

    rules = Policy.load(policy)
    with ExitStack() as undo:
        ledger = undo.enter_context(records.ledger_to_look_at(rules))
        yield undo.enter_context(Curator.open(rules, engine=drafts.names_of(rules), ledger=ledger))
