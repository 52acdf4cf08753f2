"""Checks a released table again, from the table alone: whoever receives it can do the same.

Rows are grouped by the printed text of their quasi-identifiers and by nothing else; the models are recomputed from
counts by their definitions. No code is shared with the algorithms that make releases. With the original table at hand
it is also checked that the release tells the truth: no more rows than there were, every row comes from one original row
that its cells stand for, and everything that is kept is unchanged.

Columns ``age_low`` and ``age_high`` beside a quasi-identifier ``age`` belong to what is printed of it. Rows that say
nothing but ``*``, keep no sensitive value and are too few for a class count as suppressed.

A table that passes satisfies its models; it still has no privacy loss to speak of.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dither.anonymize.attributes import Attribute, Configuration, Role
from dither.anonymize.definitions import satisfies
from dither.anonymize.findings import Finding, Problem, Verified
from dither.anonymize.grouping import Printed, decoded, grouped, in_order, texts_of, value_type
from dither.anonymize.hierarchies import TableHierarchy
from dither.anonymize.models import KMap, Model
from dither.anonymize.tables import as_table
from dither.anonymize.truth import people, untruths
from dither.anonymize.values import ANYTHING, plain

__all__ = ["Finding", "Problem", "Verified", "verify"]


def verify(released: Any, configuration: Configuration, original: Any = None) -> Verified:
    """Check a released table or file against its configuration, and against the original if that is given.

    Example:
        >>> table = pa.table({"age": ["20–29", "20–29", "30–39"], "ill": ["flu", "cold", "flu"]})
        >>> print(verify(table, Configuration.of(quasi=["age"], sensitive=["ill"], k=2)))
        3 rows in 2 classes, the smallest of 1: 1 problem
        - k-anonymity: every class has at least 2 rows; 1 of 2 classes (1 of 3 rows) violate it
    """
    return _Check(as_table(released), configuration, None if original is None else as_table(original)).run()


class _Check:
    """One verification under way."""

    def __init__(self, table: pa.Table, configuration: Configuration, original: pa.Table | None) -> None:
        self.table, self.configuration, self.original = table, configuration, original
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        have = table.column_names
        self.quasi = [attribute for attribute in configuration.quasi if attribute.name in have]
        roles = {attribute.name for attribute in configuration.attributes}
        ends = [f"{attribute.name}_{end}" for attribute in self.quasi for end in ("low", "high")]
        self.ends = [name for name in ends if name in have and name not in roles]
        kept = [a for a in (*configuration.sensitive, *configuration.insensitive) if a.name in have]
        keys = [*(attribute.name for attribute in self.quasi), *self.ends]
        texts = {name: texts_of(table.column(name)) for name in keys}
        texts |= {attribute.name: texts_of(self._kept(attribute)) for attribute in kept}
        self.printed = Printed.of(
            pa.table(texts) if texts else table.select([]), keys, len(self.quasi), [a.name for a in kept]
        )

    def run(self) -> Verified:
        """All checks, in order."""
        self._columns()
        failing = self._models()
        starred = self._starred(set().union(*(bad for _, bad in failing)))
        for model, bad in failing:
            self._violated(model, bad - starred)
        self._labels()
        sizes = self.printed.sizes
        suppressed = sum(sizes[place] for place in starred)
        total = self.table.num_rows
        if self.original is not None:
            for found in untruths(self.printed, self.configuration, self.original, starred):
                self.notes.append(found) if isinstance(found, str) else self.findings.append(found)
            suppressed += max(0, self.original.num_rows - total)
            total = max(total, self.original.num_rows)
        self._limit(suppressed, total)
        kept = [size for place, size in enumerate(sizes) if place not in starred]
        return Verified(
            rows=self.table.num_rows,
            classes=len(kept),
            smallest=min(kept, default=0),
            suppressed=suppressed,
            findings=tuple(self.findings),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _found(self, problem: Problem, text: str, *, column: str | None = None, count: int = 1) -> None:
        self.findings.append(Finding(problem=problem, text=text, column=column, count=count))

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
                self._found(Problem.COLUMN_MISSING, f"the column {name!r} is missing", column=name)
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
        try:
            return column.cast(wanted)
        except pa.ArrowException:
            self.notes.append(f"the column {attribute.name!r} can't be read with the original's type, {wanted}")
            return column

    def _models(self) -> list[tuple[Model, set[int]]]:
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
            failing.append((model, {place for place, holds in enumerate(good) if not holds}))
        return failing

    def _counted(self, model: Model) -> list[bool]:
        sizes = self.printed.sizes
        if model.sensitive is None:
            return [satisfies(model, size, {}, [], None) for size in sizes]
        attribute = self.configuration.attribute(model.sensitive)
        order, whole, levels = self._whole(attribute)
        counts: list[dict[int, int]] = [{} for _ in sizes]
        for place, (text,), number in self.printed.within([attribute.name]):
            counts[place][order[text]] = number
        return [satisfies(model, size, count, whole, levels) for size, count in zip(sizes, counts, strict=True)]

    def _whole(self, attribute: Attribute) -> tuple[dict[str | None, int], list[int], list[list[int]] | None]:
        """The place of each sensitive value in order, how often each occurs overall, and its groups by level."""
        source = self.original
        if source is None or attribute.name not in source.column_names:
            source = self.table
            if self.configuration.suppression:
                self.notes.append(
                    f"classes are compared with the released rows as to {attribute.name!r}, as the original isn't there"
                )
        column = source.column(attribute.name)
        values = in_order(pc.unique(decoded(column)), attribute)
        order: dict[str | None, int] = {}
        for text in plain(values).to_pylist():
            order.setdefault(text, len(order))
        spelled = dict(zip(*grouped(pa.table({"value": texts_of(column)}), ["value"]), strict=True))
        counts = [spelled.get((text,), 0) for text in order]
        levels = (
            None if attribute.hierarchy is None else [codes.tolist() for codes in attribute.hierarchy.levels(values)]
        )
        # a value that the original never had is at home nowhere
        for text in pc.unique(self.printed.texts.column(attribute.name)).to_pylist():
            if text not in order:
                order[text] = len(counts)
                counts.append(0)
                levels = levels and [[*codes, max(codes) + 1] for codes in levels[:-1]] + [[*levels[-1], 0]]
        return order, counts, levels

    def _starred(self, failing: set[int]) -> set[int]:
        """Groups of suppressed rows: nothing but ``*``, too few for a class, and no sensitive value told."""
        width = self.printed.width
        bare = {place for place in failing if all(text == ANYTHING for text in self.printed.groups[place][:width])}
        if not bare or not width:
            return set()
        names = [a.name for a in self.configuration.sensitive if a.name in self.printed.kept]
        telling = {
            place
            for place, told, _ in self.printed.within(names)
            if any(text not in (None, "", ANYTHING) for text in told)
        }
        return bare - telling

    def _violated(self, model: Model, bad: set[int]) -> None:
        if bad:
            sizes = self.printed.sizes
            rows = sum(sizes[place] for place in bad)
            self._found(
                Problem.MODEL_VIOLATED,
                f"{model.sentence()}; {len(bad)} of {len(sizes)} classes ({rows} of {sum(sizes)} rows) violate it",
                column=model.sensitive,
                count=len(bad),
            )

    def _labels(self) -> None:
        """Every cell of a column with a listed hierarchy is one of its labels; rules need the original."""
        for attribute in self.quasi:
            if self.original is not None or not isinstance(attribute.hierarchy, TableHierarchy):
                continue
            labels = {label for line in attribute.hierarchy.lines for label in line} | {None, ANYTHING}
            cells = pc.unique(self.printed.texts.column(attribute.name)).to_pylist()
            strange = sum(text not in labels for text in cells)
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
