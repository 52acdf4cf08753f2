"""``dither ask``: answer a question and charge for it."""

from __future__ import annotations

import json
import math
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dither.cli import options
from dither.cli.read_only_curator import looking
from dither.cli.screen import console, pointing, say, show_answer
from dither.curator import OWNER

if TYPE_CHECKING:
    from dither.curator import Answer


class Format(StrEnum):
    """How the answer is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def ask(
    sql: options.Question,
    epsilon: options.Epsilon = None,
    error: options.Wanted = None,
    weight: options.Weights = None,
    noise: options.Noise = None,
    analyst: options.Analyst = OWNER,
    form: Annotated[
        Format, typer.Option("--format", metavar="FORMAT", help="How to write the answer: table, csv or json.")
    ] = Format.TABLE,
    policy: options.PolicyFile = options.DEFAULT_POLICY,
) -> None:
    """Answer a question.

    The answer has noise, with an error bar for each value. The charge is on disk before any data is read. A question
    that was asked before is answered from the record and costs nothing.

    Example:  dither ask "SELECT city, COUNT(*) AS n FROM orders GROUP BY city" --epsilon 0.5
    """
    # before the charge: what isn't installed must be missed while nothing is paid for
    import pyarrow.csv as arrow_csv

    from dither.curator import Curator, drafts
    from dither.curator.past import records
    from dither.policy import Policy

    rules = Policy.load(policy)
    wanted: dict[str, Any] = {
        "epsilon": epsilon,
        "error": options.wanted_error(error),
        "weights": options.named(weight, "--weight"),
        "noise": noise,
        "analyst": analyst,
    }
    begun = records.is_begun(rules)
    with pointing(sql):
        if not begun:
            # what would be refused begins no ledger
            with looking(policy) as curator:
                curator.price(sql, **wanted)
        with Curator.open(rules) as curator:
            if not begun:
                say(f"a new ledger was begun: {rules.source.ledger}. Keep it: it knows what was spent")
            for line in drafts.news(curator.reports):
                say(f"new data: {line}")
            screen = console()
            with screen.status("asking …") if form is Format.TABLE and screen.is_terminal else _Quiet():
                answer = curator.sql(sql, **wanted)
            if form is Format.TABLE:
                show_answer(answer, screen)
            elif form is Format.CSV:
                arrow_csv.write_csv(_with_bars(answer), sys.stdout.buffer)
                sys.stdout.flush()
                # the table has no place for them
                for note in answer.notes:
                    say(f"note: {note}")
            else:
                print(json.dumps(_json(answer), default=str, indent=2, ensure_ascii=False, allow_nan=False))


class _Quiet:
    """Nothing to show while waiting."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _with_bars(answer: Answer) -> Any:
    """The table with two more columns for each interval."""
    import pyarrow as pa

    table = answer.table
    for name in answer.error:
        low, high = answer.interval(name)
        table = table.append_column(f"{name}_low", pa.array(low)).append_column(f"{name}_high", pa.array(high))
    return table


def _finite(value: object) -> object:
    """JSON has no word for what isn't a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(answer: Answer) -> dict[str, Any]:
    receipt = answer.receipt
    return {
        "rows": [{name: _finite(value) for name, value in row.items()} for row in _with_bars(answer).to_pylist()],
        "confidence": answer.confidence,
        "epsilon": answer.cost.epsilon,
        "delta": answer.cost.delta,
        "charged": answer.cost.charged,
        "left": answer.cost.left,
        "receipt": receipt.number if receipt else None,
        "notes": list(answer.notes),
        "older_than_data": answer.older_than_data,
    }
