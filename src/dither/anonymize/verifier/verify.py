"""Checks a released table again, from the table alone: whoever receives it can do the same.

Rows are grouped by the printed text of their quasi-identifiers and by nothing else; the models are recomputed from
counts by their definitions. With the original table at hand it is also checked that the release tells the truth: no
more rows than there were, every row comes from one original row that its cells stand for, and everything that is kept
is unchanged. The order of rows tells nothing, and any is right.

No code is shared with the algorithms that make releases. Shared is what says what was wanted (the configuration, the
parameters of its models, its hierarchies with their labels), how files are read, and how a single value is spelled.

Columns ``age_low`` and ``age_high`` beside a quasi-identifier ``age`` belong to what is printed of it. Rows that say
nothing but ``*`` (other columns may also be missing or empty) and are too few for a class count as suppressed.

A table that passes satisfies its models; it still has no privacy loss to speak of.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import TableHierarchy
from dither.anonymize.models.catalogue import KMap, Model
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import ANYTHING, Bools
from dither.anonymize.verifier.definitions import satisfies
from dither.anonymize.verifier.findings import Flaw, Problem, VerifierReport
from dither.anonymize.verifier.grouping import Coded, Printed, decoded, in_order, spelled, value_type
from dither.anonymize.verifier.truth import people, untruths
from dither.errors import did_you_mean

__all__ = ["Flaw", "Problem", "VerifierReport", "verify"]


def verify(released: Any, configuration: Configuration, original: Any = None) -> VerifierReport:
    """Check a released table or file against its configuration, and against the original if that is given.

    Args:
        released: A table (Arrow, pandas, polars, a mapping of columns), or the path of a CSV or Parquet file.
        configuration: What was promised of it: roles of columns, and models.
        original: The table that it was made from, in any of these forms; without it the truth of what is printed
            isn't checked.

    Returns:
        All that is wrong, and what couldn't be checked.

    Example:
        >>> table = pa.table({"age": ["20–29", "20–29", "30–39"], "ill": ["flu", "cold", "flu"]})
        >>> print(verify(table, Configuration.of(quasi=["age"], sensitive=["ill"], k=2)))
        3 rows in 2 classes, the smallest of 1: 1 problem
        - k-anonymity: every class has at least 2 rows; 1 of 2 classes (1 of 3 rows) violate it
    """
    known = None if original is None else as_table(original)
    # text files forget types: a kept column has that of the original, and what is printed is text
    kept = [attribute.name for attribute in (*configuration.sensitive, *configuration.insensitive)]
    wanted = {name: value_type(known.column(name)) for name in kept if known is not None and name in known.column_names}
    for attribute in configuration.quasi:
        names = (attribute.name, f"{attribute.name}_low", f"{attribute.name}_high")
        wanted |= {name: pa.string() for name in names if name not in kept}
    return _Check(as_table(released, wanted=wanted), configuration, known).run()


class _Check:
    """One verification under way."""

    def __init__(self, table: pa.Table, configuration: Configuration, original: pa.Table | None) -> None:
        self.table, self.configuration, self.original = table, configuration, original
        self.findings: list[Flaw] = []
        self.notes: list[str] = []
        have = table.column_names
        self.quasi = [attribute for attribute in configuration.quasi if attribute.name in have]
        roles = {attribute.name for attribute in configuration.attributes}
        ends = [f"{attribute.name}_{end}" for attribute in self.quasi for end in ("low", "high")]
        self.ends = [name for name in ends if name in have and name not in roles]
        kept = [a for a in (*configuration.sensitive, *configuration.insensitive) if a.name in have]
        keys = [*(attribute.name for attribute in self.quasi), *self.ends]
        columns = {name: Coded.printed(table.column(name)) for name in keys}
        columns |= {attribute.name: Coded.printed(self._kept(attribute)) for attribute in kept}
        names = [attribute.name for attribute in kept]
        self.printed = Printed.of(columns, keys, len(self.quasi), names, table.num_rows)

    def run(self) -> VerifierReport:
        """All checks, in order."""
        self._columns()
        failing = self._models()
        sizes = self.printed.groups.rows
        starred = self._starred(np.logical_or.reduce([np.zeros(sizes.size, bool), *(bad for _, bad in failing)]))
        for model, bad in failing:
            self._violated(model, bad & ~starred)
        self._labels()
        suppressed = int(sizes[starred].sum())
        total = self.table.num_rows
        undecided = False
        if self.original is not None:
            for found in untruths(self.printed, self.configuration, self.original, starred):
                if isinstance(found, str):
                    undecided = True
                    self.notes.append(found)
                else:
                    self.findings.append(found)
            suppressed += max(0, self.original.num_rows - total)
            total = max(total, self.original.num_rows)
        self._limit(suppressed, total)
        kept = sizes[~starred]
        return VerifierReport(
            rows=self.table.num_rows,
            classes=kept.size,
            smallest=int(kept.min()) if kept.size else 0,
            suppressed=suppressed,
            undecided=undecided,
            findings=tuple(self.findings),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _found(self, problem: Problem, text: str, *, column: str | None = None, count: int = 1) -> None:
        self.findings.append(Flaw(problem=problem, text=text, column=column, count=count))

    def _columns(self) -> None:
        """The release has the columns that it should have, and no others."""
        have, known = self.table.column_names, set(self.ends)
        for attribute in self.configuration.attributes:
            name = attribute.name
            known.add(name)
            if attribute.role is Role.IDENTIFYING:
                if name in have:
                    text = f"the column {name!r} identifies people and must not be in a release"
                    self._found(Problem.IDENTIFYING_COLUMN, text, column=name)
            elif name not in have:
                meant = did_you_mean(name, have)
                hint = "" if meant is None else f"; did you mean {meant!r}?"
                self._found(Problem.COLUMN_MISSING, f"the column {name!r} is missing{hint}", column=name)
        for name in have:
            if name not in known:
                text = (
                    f"the column {name!r} has no role in the configuration, so that nothing is known of what it tells"
                )
                self._found(Problem.UNKNOWN_COLUMN, text, column=name)

    def _kept(self, attribute: Attribute) -> Any:
        """A kept column with the original's type if that is there, since text files forget types."""
        column = decoded(self.table.column(attribute.name))
        if self.original is None or attribute.name not in self.original.column_names:
            return column
        wanted = value_type(self.original.column(attribute.name))
        if column.type == wanted:
            return column
        try:
            # only if nothing is lost: a moment that became a day would look like the day that was there
            converted = column.cast(wanted)
            if Coded.printed(converted.cast(column.type)).texts() == Coded.printed(column).texts():
                return converted
        except pa.ArrowException:
            pass
        self.notes.append(f"the column {attribute.name!r} can't be read with the original's type, {wanted}")
        return column

    def _models(self) -> list[tuple[Model, Bools]]:
        """Which classes violate each model."""
        failing = []
        for model in self.configuration.models:
            if model.sensitive is not None and model.sensitive not in self.table.column_names:
                # reported as a missing column
                continue
            if isinstance(model, KMap):
                good = [number >= model.k for number in people(model, self.printed, self.quasi)]
            else:
                good = self._counted(model)
            failing.append((model, ~np.array(good, bool)))
        return failing

    def _counted(self, model: Model) -> list[bool]:
        sizes = self.printed.groups.rows.tolist()
        if model.sensitive is None:
            return [satisfies(model, size, {}, [], None) for size in sizes]
        attribute = self.configuration.attribute(model.sensitive)
        order, whole, levels = self._whole(attribute)
        counts: list[dict[int, int]] = [{} for _ in sizes]
        for group, place, number in zip(*self.printed.within(attribute.name), strict=True):
            counts[group][order[place]] = number
        return [satisfies(model, size, count, whole, levels) for size, count in zip(sizes, counts, strict=True)]

    def _whole(self, attribute: Attribute) -> tuple[list[int], list[int], list[list[int]] | None]:
        """The place in order of each printed sensitive value, how often each occurs overall, and groups by level."""
        source = self.original
        if source is None or attribute.name not in source.column_names:
            source = self.table
            if self.configuration.suppression:
                self.notes.append(
                    f"classes are compared with the released rows as to {attribute.name!r}, as the original isn't there"
                )
        column = source.column(attribute.name)
        values = in_order(Coded.of(column).values, attribute)
        order: dict[str | None, int] = {}
        for text in spelled(values).to_pylist():
            order.setdefault(text, len(order))
        overall = Coded.printed(column)
        counts = [0] * len(order)
        for text, number in zip(overall.texts(), overall.counts.tolist(), strict=True):
            counts[order[text]] = number
        levels = (
            None if attribute.hierarchy is None else [codes.tolist() for codes in attribute.hierarchy.levels(values)]
        )
        # a value that the original never had is at home nowhere
        printed = self.printed.columns[attribute.name].texts()
        for text in printed:
            if text not in order:
                order[text] = len(counts)
                counts.append(0)
                levels = levels and [[*codes, max(codes) + 1] for codes in levels[:-1]] + [[*levels[-1], 0]]
        return [order[text] for text in printed], counts, levels

    def _starred(self, failing: Bools) -> Bools:
        """Groups of suppressed rows: nothing but ``*``, too few for a class, and nothing else told."""
        printed, groups = self.printed, self.printed.groups
        if not printed.width:
            return np.zeros(groups.number, bool)
        bare = failing.copy()
        for place, name in enumerate(printed.keys):
            column = printed.columns[name]
            # a missing quasi-identifier is something that is told; a missing end of a range isn't
            quiet = [text == ANYTHING or (text is None and place >= printed.width) for text in column.texts()]
            bare &= np.array(quiet, bool)[printed.cells(name)]
        for name in printed.kept:
            column = printed.columns[name]
            telling = np.array([text not in (None, "", ANYTHING) for text in column.texts()], bool)
            bare[groups.of_row[telling[column.codes]]] = False
        return bare

    def _violated(self, model: Model, bad: Bools) -> None:
        if bad.any():
            sizes = self.printed.groups.rows
            number, rows = int(bad.sum()), int(sizes[bad].sum())
            self._found(
                Problem.MODEL_VIOLATED,
                f"{model.sentence()}; {number} of {sizes.size} classes ({rows} of {sizes.sum()} rows) violate it",
                column=model.sensitive,
                count=number,
            )

    def _labels(self) -> None:
        """Every cell of a column with a listed hierarchy is one of its labels; rules need the original."""
        for attribute in self.quasi:
            if self.original is not None or not isinstance(attribute.hierarchy, TableHierarchy):
                continue
            labels = {label for line in attribute.hierarchy.lines for label in line} | {None, ANYTHING}
            strange = sum(text not in labels for text in self.printed.columns[attribute.name].texts())
            if strange:
                text = f"{strange} different cells of {attribute.name!r} are not labels of its hierarchy"
                self._found(Problem.NOT_IN_HIERARCHY, text, column=attribute.name, count=strange)

    def _limit(self, suppressed: int, total: int) -> None:
        limit = self.configuration.suppression
        if total and Fraction(suppressed, total) > limit:
            self._found(
                Problem.TOO_MANY_SUPPRESSED,
                f"{suppressed} of {total} rows are suppressed, and at most {float(limit):.4g} of them may be",
                count=suppressed,
            )
