"""Advice on the data itself: what of it no answer will have; for ``dither check --data``, and the owner alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dither.policy.findings import Level, Notes, PolicyFinding
from dither.policy.line_numbers import Place
from dither.policy.policy import Policy
from dither.policy.toml_text import toml_line
from dither.query.intake import SETTINGS, Beyond, Left, TableReport, coarse

_MENDS = {
    "unreadable": "Mend the values, or declare another type",
    "without_unit": "Mend the ids, or name another column",
    "unlisted": "Add the keys that are public knowledge, or mend how they are written",
}


def about_data(
    policy: Policy, reports: Iterable[TableReport], beyond: Mapping[str, Iterable[Beyond]] | None = None
) -> list[PolicyFinding]:
    """Everything that is left out, most serious first: an error where it is more than the policy lets be.

    Of a version of CSV files that was accepted before that is a warning: it stays open. So are ``beyond``, by table the
    facts that the data doesn't keep to: they make answers less right, not less private.
    """
    notes = Notes(policy.reading.file, policy.reading.places)
    for name, broken in (beyond or {}).items():
        for fact in broken:
            notes.note(
                Level.WARNING,
                ("tables", name),
                f"{fact}. What is beyond is cut from answers, which say that nothing is. Remove the fact, or mend the "
                "data.",
            )
    for report in reports:
        for left in report.left:
            too_much = left.beyond(policy.source.limits)
            accepted = report.csv and report.accepted
            level = Level.HINT if not too_much else Level.WARNING if accepted else Level.ERROR
            if left.why == "blanks":
                level = Level.WARNING
            told = f"{left}."
            if too_much:
                told += f" {_MENDS[left.why]}. If this is as it should be, say so under [source]."
            write = toml_line(SETTINGS[left.why], coarse(left.share)) if too_much else ""
            notes.note(level, _place(report.table, left), told, write=write)
    return notes.in_order()


def _place(table: str, left: Left) -> Place:
    return ("tables", table, "columns", left.column)
