"""Full-domain generalisation: every value of a column at the same level of its hierarchy, and the best such choice.

The levels of all quasi-identifiers form a lattice, from the table as it is to one in which everything is ``*``. The
cheapest node at which every class satisfies the models, with at most a given share of rows suppressed, is found
exactly: nodes that weren't checked are proven to fail or to cost no less (:mod:`dither.anonymize.lattice.search`,
:mod:`dither.anonymize.lattice.check`). After Samarati 2001, Incognito (LeFevre, DeWitt & Ramakrishnan 2005), OLA
(El Emam et al. 2009) and Flash (Kohlmayer et al. 2012); ARX users will find their hierarchies, weights and
suppression limit.

One recoding for the whole table loses more detail than Mondrian's, and in exchange equal values stay equal, so that the
release can be counted and joined by its values.

It claims no privacy loss. Which node was chosen depends on the data, and somebody who knows the search may draw
conclusions from that (Wong et al. 2007).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from dither.anonymize.attributes import Attribute
from dither.anonymize.configuration import Configuration, configured
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.lattice.check import Requirements
from dither.anonymize.lattice.cost import CostMetric, Metric, cost_of
from dither.anonymize.lattice.generalize import Domain, Node, released, with_hierarchies
from dither.anonymize.lattice.search import expect_searchable, search
from dither.anonymize.models.catalogue import Model
from dither.anonymize.releases.release import Release
from dither.anonymize.table.read import as_table
from dither.errors import InvalidParameter
from dither.numeric import Number, positive_int
from dither.progress import Watch, part_of, unwatched

MetricName: TypeAlias = Literal["loss", "entropy", "precision", "height", "discernibility", "classes"]
Levels: TypeAlias = Mapping[str, int | tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best node of a lattice: the level of each quasi-identifier, what it costs, and how it was found.

    ``value`` is in the metric's own terms. ``nodes`` is the size of the lattice and ``checked`` how many of them were
    looked at; ``complete`` says that the others are proven to be no better.
    """

    levels: dict[str, int]
    metric: Metric
    value: float
    suppressed: int
    nodes: int
    checked: int
    complete: bool

    def __str__(self) -> str:
        node = f"({', '.join(map(str, self.levels.values()))})"
        among = (
            f"{self.nodes:,} nodes, {self.checked:,} checked" if self.complete else f"{self.checked:,} nodes checked"
        )
        return f"lattice {node}, {self.metric.goal} of {among}"


def full_domain(
    table: Any,
    configuration: Configuration | None = None,
    *,
    quasi: Sequence[str | Attribute] | Mapping[str, Hierarchy | None] = (),
    sensitive: Sequence[str | Attribute] | Mapping[str, Hierarchy | None] = (),
    identifying: Sequence[str] = (),
    insensitive: Sequence[str] = (),
    k: int | None = None,
    models: Iterable[Model] = (),
    weights: Mapping[str, float] | None = None,
    suppression: Number = 0,
    metric: Metric | MetricName = Metric.LOSS,
    levels: Levels | None = None,
    most: int | None = None,
    watch: Watch = unwatched,
) -> Release:
    """The release with one level for each quasi-identifier that loses least of all that satisfy every model.

    Say what the columns are by a configuration, or by the keywords that ``Configuration.of`` takes. Quasi-identifiers
    without a hierarchy get an automatic one. Rows of classes that fail are suppressed: left out of the release, where
    ARX would keep them as ``*``.

    Args:
        table: Anything that ``as_table`` reads.
        configuration: Roles and models, in place of the keywords down to ``suppression``.
        quasi: What others may know of a person, as in ``Configuration.of``.
        sensitive: What nobody should learn of a person; kept as it is.
        identifying: Columns to remove, as are those that are named nowhere.
        insensitive: Columns to keep that are neither known nor harmful.
        k: How many rows must look alike at least.
        models: What every class must satisfy, besides ``k``.
        weights: How much a quasi-identifier's detail matters; 1 where none is given.
        suppression: The most rows that may be suppressed, as a share of all, rounded down.
        metric: What is made as small as possible, or as many for classes.
        levels: A level, or (lowest, highest), for quasi-identifiers by name; level 0 is the table as it is.
        most: After how many nodes the search ends, with the best of those; without it, the result is the best of all.
        watch: Called with the share that is done and a few words; it may raise to stop.

    Raises:
        InvalidParameter: If the table doesn't suit the configuration, no node satisfies it, or there are too many.

    Example:
        >>> people = pa.table({"age": [31, 33, 38, 52, 55, 59], "sex": ["f", "f", "f", "m", "m", "m"]})
        >>> release = full_domain(people, quasi={"age": Hierarchy.intervals((10, 20)), "sex": None}, k=3)
        >>> release.table.column("age").to_pylist()
        ['30–39', '30–39', '30–39', '50–59', '50–59', '50–59']
        >>> release.how
        'lattice (1, 0), least loss of 8 nodes, 3 checked'
    """
    arrow = as_table(table)
    asked = configured(
        arrow,
        configuration,
        quasi=quasi,
        sensitive=sensitive,
        identifying=identifying,
        insensitive=insensitive,
        k=k,
        models=models,
        weights=weights,
        suppression=suppression,
    )
    prepared = _Prepared(arrow, asked, metric, levels, watch)
    optimum = prepared.optimum(most, part_of(watch, 0.1, 0.9))
    watch(0.9, "printing")
    release = prepared.release(tuple(optimum.levels.values()), how=str(optimum))
    watch(1.0, "done")
    return release


def best_levels(
    table: Any,
    configuration: Configuration,
    *,
    metric: Metric | MetricName = Metric.LOSS,
    levels: Levels | None = None,
    most: int | None = None,
    watch: Watch = unwatched,
) -> Optimum:
    """The levels that :func:`full_domain` would choose, without making the release."""
    prepared = _Prepared(as_table(table), configuration, metric, levels, watch)
    return prepared.optimum(most, part_of(watch, 0.1, 1.0))


def generalized(table: Any, configuration: Configuration, levels: Mapping[str, int]) -> Release:
    """The release at levels of your own choice, one for each quasi-identifier; raises if it fails the models."""
    names = [attribute.name for attribute in configuration.quasi]
    if sorted(levels) != sorted(names):
        raise InvalidParameter(f"levels must name each quasi-identifier: {', '.join(map(repr, names))}")
    prepared = _Prepared(as_table(table), configuration, Metric.HEIGHT, levels, unwatched)
    node = prepared.lowest
    return prepared.release(node, how=f"lattice ({', '.join(map(str, node))})")


class _Prepared:
    """A table and a configuration, made ready for a search."""

    def __init__(
        self,
        table: pa.Table,
        configuration: Configuration,
        metric: Metric | MetricName,
        levels: Levels | None,
        watch: Watch,
    ) -> None:
        self.metric = _metric(metric)
        configuration.check(table)
        watch(0.0, "reading columns")
        self.table = table
        self.configuration = with_hierarchies(table, configuration)
        self.names = [attribute.name for attribute in self.configuration.quasi]
        self.domain = Domain.of(table, self.configuration.quasi)
        self.lowest, self.highest = _box(self.names, self.domain.heights, levels or {})
        self.cost: CostMetric = cost_of(self.metric, self.domain)
        self.requirements = Requirements(table, self.configuration, self.domain, self.cost, self.lowest)

    def optimum(self, most: int | None, watch: Watch) -> Optimum:
        """Search the box of levels."""
        expect_searchable(self.lowest, self.highest)
        limit = None if most is None else positive_int(most, "most")
        prior = self.cost.prior(self.lowest, self.highest)
        found = search(self.lowest, prior, self.requirements.check, most=limit, watch=watch)
        if found is None and limit is not None:
            raise InvalidParameter(
                f"none of the {limit:,} nodes that were checked satisfies {self._asked()}: let it check more"
            )
        if found is None:
            raise InvalidParameter(
                f"no node of the lattice satisfies {self._asked()}: allow more suppression or higher levels, or ask "
                "for less"
            )
        return Optimum(
            levels=dict(zip(self.names, found.node, strict=True)),
            metric=self.metric,
            value=self.cost.measured(found.cost),
            suppressed=found.suppressed,
            nodes=found.nodes,
            checked=found.checked,
            complete=found.complete,
        )

    def release(self, node: Node, how: str) -> Release:
        """The release of a node."""
        grouping, of_row, failing = self.requirements.failing(node)
        suppressed = int(grouping.sizes[failing].sum())
        if suppressed > self.requirements.allowed or suppressed == self.domain.rows:
            raise InvalidParameter(
                f"these levels would suppress {suppressed:,} of {self.domain.rows:,} rows to satisfy {self._asked()}, "
                f"and at most {self.requirements.allowed:,} may be: choose higher levels or a larger suppression limit"
            )
        return released(
            self.table, self.configuration, self.domain, grouping=grouping, of_row=of_row, failing=failing, how=how
        )

    def _asked(self) -> str:
        return "; ".join(model.sentence() for model in self.configuration.models)


def _metric(metric: Metric | MetricName) -> Metric:
    if isinstance(metric, Metric):
        return metric
    names = [one.value for one in Metric]
    if metric not in names:
        raise InvalidParameter(f"metric must be one of {', '.join(names)}; got {metric!r}")
    return Metric(metric)


def _box(names: Sequence[str], heights: Node, levels: Levels) -> tuple[Node, Node]:
    """The lowest and the highest level of each quasi-identifier."""
    strangers = sorted(set(levels) - set(names))
    if strangers:
        raise InvalidParameter(f"levels are for quasi-identifiers; these are none: {', '.join(map(repr, strangers))}")
    lowest, highest = [], []
    for name, height in zip(names, heights, strict=True):
        asked: Any = levels.get(name, (0, height))
        ends = tuple(asked) if isinstance(asked, tuple | list) else (asked, asked)
        whole = len(ends) == 2 and all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
        low, high = ends if whole else (-1, -1)
        if not 0 <= low <= high <= height:
            raise InvalidParameter(
                f"the levels of {name!r} must be one level or (lowest, highest), from 0 to {height}; got {asked!r}"
            )
        lowest.append(low)
        highest.append(high)
    return tuple(lowest), tuple(highest)
