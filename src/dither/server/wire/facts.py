"""What the server tells beside answers, where more is done than to copy fields: budgets, guarantees, public facts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dither.curator import BudgetLine, Currency, KnownProfile, Verified
from dither.numeric import fraction_up
from dither.policy import Policy
from dither.privacy import Guarantee, Json
from dither.query.kinds import Auto, Interval, Kind, Value
from dither.query.plan.profile import LOWER_ENDS, UPPER_ENDS
from dither.query.schema import ColumnFacts, TableFacts
from dither.server.wire.forms import finite

DAY_ZERO = dt.date(1970, 1, 1)
TIME_ZERO = dt.datetime(1970, 1, 1)  # noqa: DTZ001  timestamps without a zone are read as UTC


def budget_form(lines: Sequence[BudgetLine]) -> list[Json]:
    """Accounts as people read them."""
    return [
        {
            "account": line.account,
            "epsilon_spent": finite(line.epsilon_spent),
            "epsilon_budget": finite(line.epsilon_budget),
            "share": finite(line.share),
            "delta": line.delta,
            "exactly": line.exactly,
            "in_words": str(line),
        }
        for line in lines
    ]


def guarantee_form(guarantee: Guarantee) -> Json:
    """A promise (ε, δ), rounded up for people and exactly, and what it means."""
    return {
        "epsilon": fraction_up(guarantee.epsilon),
        "delta": fraction_up(guarantee.delta),
        "exactly": {"epsilon": str(guarantee.epsilon), "delta": str(guarantee.delta)},
        "in_words": guarantee.sentence(),
    }


def verified_form(found: Verified, currency: Currency) -> Json:
    """What a replay of the whole ledger found to hold, for the owner."""
    return {
        "entries": found.entries,
        "head": found.head,
        "adopted": found.adopted,
        "rebound": found.rebound,
        "format": found.format,
        "currency": currency.value,
        "balances": [
            {
                "account": str(balance.account),
                "path": list(balance.account.path),
                "spent": balance.spent.in_words(currency),
                "amount": balance.spent.to_json(),
                "limit": None if balance.limit is None else balance.limit.to_json(),
                "restated": balance.restated,
                "first_delta": balance.first_delta,
                "counts": dict(balance.counts),
            }
            for balance in found.balances
        ],
    }


def schema_form(policy: Policy, profiles: Sequence[KnownProfile] = ()) -> Json:
    """The public facts: which tables and columns there are, who is protected, and what is declared about values.

    And the profiles of this version of the data that were paid for, which are public too.
    """
    return {
        "dataset": policy.source.name,
        "protects": policy.unit_statement(),
        "adjacency": policy.schema.adjacency.value,
        "tables": [_table_form(table) for table in policy.schema.tables.values()],
        "profiles": [_profile_form(profile) for profile in profiles],
    }


def _profile_form(known: KnownProfile) -> Json:
    counts = known.profile.counts
    ends = zip(LOWER_ENDS, (*UPPER_ENDS, None), counts, strict=True)
    return {
        "question": known.sql,
        "epsilon": known.epsilon,
        "at": known.at,
        "units": [{"rows_from": low, "rows_to": high, "units": count} for low, high, count in ends],
        "error": known.profile.error,
    }


def _table_form(table: TableFacts) -> Json:
    return {
        "name": table.name,
        "private": table.private,
        "unit_column": table.unit_column,
        "max_groups_contributed": None if not table.private else "auto" if table.auto_groups else table.groups,
        "max_rows_contributed": None if not table.private else "auto" if table.auto_rows else table.rows,
        "rows_per_unit_at_most": table.most_rows if table.unit_column is not None else None,
        "unique": [sorted(columns) for columns in table.unique],
        "columns": [_column_form(column) for column in table.columns.values()],
    }


def _column_form(column: ColumnFacts) -> Json:
    between: Any = None
    if isinstance(column.between, Interval):
        between = [_bound_form(column.between.low, column.kind), _bound_form(column.between.high, column.kind)]
    elif isinstance(column.between, Auto):
        between = column.between.value
    return {
        "name": column.name,
        "type": column.kind.value,
        "between": between,
        "step": None if column.step is None else _value_form(column.step),
        "keys": None if column.keys is None else [_value_form(key) for key in column.keys],
        "hidden": column.hidden,
    }


def since_1970(bound: Fraction, kind: Kind) -> dt.date:
    """The date or time that a bound means: those of dates count days, and those of timestamps microseconds."""
    days = kind is Kind.DATE
    return DAY_ZERO + dt.timedelta(days=int(bound)) if days else TIME_ZERO + dt.timedelta(microseconds=int(bound))


def _bound_form(bound: Fraction, kind: Kind) -> int | float | str:
    if kind.temporal:
        return since_1970(bound, kind).isoformat()
    return int(bound) if bound.denominator == 1 else float(bound)


def _value_form(value: Value) -> bool | int | float | str | None:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    return finite(value) if isinstance(value, float) else value
