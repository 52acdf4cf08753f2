"""Budgets of a policy: what may be lost in all, by one analyst, and by one question."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from dither.policy.file_schema import SMALLEST_DELTA, AnalystSettings, BudgetSettings, shaped
from dither.policy.findings import Notes, shown
from dither.policy.source import name_problem
from dither.policy.toml_text import toml_line, toml_number
from dither.privacy import Adjacency

LARGE_DELTA = Fraction(1, 1000)
QUERIES_PER_DELTA = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be lost by everybody together, and by one question; exact.

    With ``delta_budget`` 0 pure ε adds up; otherwise zCDP does, and half of δ is for discovering keys.
    ``default_epsilon`` is for questions that name neither ε nor an error; None if they are to be refused.
    ``analysts`` says whether a name without an entry of its own may ask. A question of an analyst that costs more than
    ``needs_approval_above`` waits for the owner; with ``share_answers`` analysts may read each other's answers.
    ``noise`` says which law questions may have where there is a δ, and ``questions`` for how many as precise ones the
    budget is meant, by which the law is chosen where a question says nothing.
    """

    epsilon_budget: Fraction
    delta_budget: Fraction
    max_epsilon_per_query: Fraction
    delta_per_query: Fraction
    default_epsilon: Fraction | None = None
    round_answer_time_up_to: Fraction = Fraction(0)
    analysts: Literal["listed", "any"] = "listed"
    needs_approval_above: Fraction | None = None
    share_answers: bool = False
    questions: int | None = None
    noise: Literal["laplace", "gaussian", "any"] = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyst:
    """What one analyst may lose, besides the limits of the dataset; None where only those bind.

    ``needs_approval_above`` is None where every question may be asked without the owner.
    """

    name: str
    epsilon_budget: Fraction | None
    delta_budget: Fraction | None
    max_epsilon_per_query: Fraction
    needs_approval_above: Fraction | None = None


def read_budget(raw: object, notes: Notes) -> tuple[Budget | None, Adjacency]:
    """The budget, or None if it can't be read, and the adjacency for which it is kept."""
    if raw is None:
        notes.error(
            (), "the section [budget] is missing: how much may be lost?", write="[budget]\nepsilon_budget = 1.0"
        )
        return None, Adjacency.ADD_REMOVE
    settings, broken = shaped(BudgetSettings, raw, ("budget",), notes)
    adjacency = settings.adjacency or Adjacency.ADD_REMOVE
    epsilon = settings.epsilon_budget
    if epsilon is None and "epsilon_budget" not in broken:
        notes.error(
            ("budget",), "epsilon_budget is missing: the most that may be lost in all.", write="epsilon_budget = 1.0"
        )
    if epsilon is not None:
        _at_most(settings.max_epsilon_per_query, "max_epsilon_per_query", epsilon, "epsilon_budget", notes)
    cap = settings.max_epsilon_per_query or epsilon
    if cap is not None:
        most = "max_epsilon_per_query" if settings.max_epsilon_per_query else "epsilon_budget"
        _at_most(settings.default_epsilon, "default_epsilon", cap, most, notes)
    delta = settings.delta_budget or Fraction(0)
    per_query = _delta_per_query(settings, broken, delta, notes)
    if settings.noise == "gaussian" and delta == 0 and "delta_budget" not in broken:
        notes.error(
            ("budget", "noise"),
            "delta_budget is 0, and Gaussian noise has no ε without a δ. Remove the line, or give the budget a δ.",
            write='noise = "laplace"',
        )
    if delta > LARGE_DELTA:
        notes.warning(
            ("budget", "delta_budget"),
            f"δ is the chance that the promise fails altogether, and {toml_number(delta)} is large: somebody in a "
            f"table of {int(1 / delta)} people may be exposed. Take less than one over the number of people.",
            write="delta_budget = 1e-6",
        )
    if epsilon is None or broken:
        return None, adjacency
    return (
        Budget(
            epsilon_budget=epsilon,
            delta_budget=delta,
            max_epsilon_per_query=settings.max_epsilon_per_query or epsilon,
            delta_per_query=per_query,
            default_epsilon=settings.default_epsilon,
            round_answer_time_up_to=settings.round_answer_time_up_to or Fraction(0),
            analysts=settings.analysts or "listed",
            needs_approval_above=settings.needs_approval_above,
            share_answers=settings.share_answers or False,
            questions=settings.questions,
            noise=settings.noise or "any",
        ),
        adjacency,
    )


def _at_most(value: Fraction | None, name: str, most: Fraction, limit: str, notes: Notes) -> None:
    if value is not None and value > most:
        notes.error(
            ("budget", name),
            f"expected at most the {limit}, {toml_number(most)}; found {toml_number(value)}.",
            write=toml_line(name, most),
        )


def _delta_per_query(settings: BudgetSettings, broken: frozenset[str], delta: Fraction, notes: Notes) -> Fraction:
    """The δ of one question; without a setting a hundredth of the budget."""
    value, place = settings.delta_per_query, ("budget", "delta_per_query")
    if value is None or "delta_budget" in broken:
        return delta / QUERIES_PER_DELTA
    if delta == 0 and value > 0:
        notes.error(
            place,
            "delta_budget is 0, so no question can use a δ. Remove the line, or give the budget a δ.",
            write=toml_line("delta_budget", min(QUERIES_PER_DELTA * value, Fraction(1, 10**6))),
        )
    elif delta > 0 and (value == 0 or value > delta / 2):
        notes.error(
            place,
            f"expected more than 0 and at most half of delta_budget, {toml_number(delta / 2)}; found "
            f"{toml_number(value)}.",
            write=toml_line("delta_per_query", max(delta / QUERIES_PER_DELTA, SMALLEST_DELTA)),
        )
    return value


def read_analysts(raw: object, budget: Budget | None, notes: Notes) -> Mapping[str, Analyst]:
    """The analysts with entries of their own, by name in its normal form."""
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        notes.error(
            ("analysts",),
            f"expected one section for each analyst, found {shown(raw)}.",
            write="[analysts.ana]\nepsilon_budget = 1.0",
        )
        raw = {}
    analysts: dict[str, Analyst] = {}
    seen: set[str] = set()
    for written, part in raw.items():
        path = ("analysts", written)
        problem = name_problem(written)
        if problem is not None:
            notes.error(path, f"{problem}.", write="[analysts.ana]")
        name = unicodedata.normalize("NFC", written)
        if name in seen:
            notes.error(path, "this name is another spelling of one above. Remove one of the two.")
        seen.add(name)
        settings, broken = shaped(AnalystSettings, part, path, notes)
        _check_analyst(written, settings, broken, budget, notes)
        if not broken and settings.epsilon_budget is not None and budget is not None:
            most = settings.max_epsilon_per_query or budget.max_epsilon_per_query
            analysts[name] = Analyst(
                name=name,
                epsilon_budget=settings.epsilon_budget,
                delta_budget=settings.delta_budget,
                max_epsilon_per_query=min(most, budget.max_epsilon_per_query, settings.epsilon_budget),
                needs_approval_above=settings.needs_approval_above or budget.needs_approval_above,
            )
    if not raw and budget is not None and budget.analysts == "listed":
        notes.warning(
            ("budget",),
            "only the owner may ask: no analyst is listed. Add a section [analysts.NAME] for each, or let any ask.",
            write='analysts = "any"',
        )
    if analysts and budget is not None and budget.analysts == "any":
        # a name that merely looks like a listed one is another name, too
        notes.warning(
            ("budget", "analysts"),
            "any name may ask, and one without a section has no cap but the dataset's: the caps of the sections below "
            "bind only those who keep to their names. List all who may ask.",
            write='analysts = "listed"',
        )
    return MappingProxyType(analysts)


def _check_analyst(
    written: str, settings: AnalystSettings, broken: frozenset[str], budget: Budget | None, notes: Notes
) -> None:
    path = ("analysts", written)
    own = settings.epsilon_budget
    if own is None and "epsilon_budget" not in broken:
        notes.error(
            path, "epsilon_budget is missing: the most that this analyst may lose.", write="epsilon_budget = 1.0"
        )
    most = settings.max_epsilon_per_query
    if own is not None and most is not None and most > own:
        notes.error(
            (*path, "max_epsilon_per_query"),
            f"expected at most the analyst's epsilon_budget, {toml_number(own)}; found {toml_number(most)}.",
            write=toml_line("max_epsilon_per_query", own),
        )
    if budget is None:
        return
    _exceeds(own, "epsilon_budget", budget.epsilon_budget, written, notes)
    _exceeds(most, "max_epsilon_per_query", budget.max_epsilon_per_query, written, notes)
    delta = settings.delta_budget
    if delta is None:
        return
    if (delta == 0) != (budget.delta_budget == 0):
        notes.error(
            (*path, "delta_budget"),
            "an analyst's budget is kept in the currency of the dataset's, so their δ are both 0 or both above it. "
            "Remove the line, or take the dataset's.",
            write=toml_line("delta_budget", budget.delta_budget),
        )
    else:
        _exceeds(delta, "delta_budget", budget.delta_budget, written, notes)


def _exceeds(value: Fraction | None, name: str, most: Fraction, written: str, notes: Notes) -> None:
    if value is not None and value > most:
        notes.warning(
            ("analysts", written, name),
            f"this is more than the dataset's, {toml_number(most)}, which binds first.",
            write=toml_line(name, most),
        )
