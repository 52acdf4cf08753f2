"""Settings of a session that its clients may not change.

They would change how words are read, how values are written, or how much of the machine a statement may take.
"""

from __future__ import annotations

from dataclasses import dataclass

from dither.server.pgwire.commands import Setting

_UTF8 = ("", "utf8", "utf-8", "unicode")
_MACHINE = frozenset(
    {
        "work_mem",
        "maintenance_work_mem",
        "hash_mem_multiplier",
        "temp_buffers",
        "logical_decoding_work_mem",
        "max_stack_depth",
        "max_parallel_workers",
        "max_parallel_workers_per_gather",
        "max_parallel_maintenance_workers",
        "effective_io_concurrency",
        "maintenance_io_concurrency",
        "io_combine_limit",
    }
)
# Values of a client's StartupMessage that are passed on to the shadow; others, and options, are left out.
PASSED_ON = frozenset(
    {
        *("application_name", "timezone", "extra_float_digits", "intervalstyle", "bytea_output"),
        *("search_path", "client_min_messages"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProblem:
    """Why a setting can't be changed."""

    title: str
    hint: str


def setting_problem(setting: Setting) -> SettingProblem | None:
    """Why this can't be set; None if it can. Reading a setting is never a problem."""
    value = setting.value.strip().lower()
    if setting.action != "set":
        return None
    if setting.name in ("client_encoding", "names") and value not in _UTF8:
        return SettingProblem(title="texts are sent in UTF-8", hint="Set client_encoding to UTF8.")
    if setting.name == "standard_conforming_strings" and value not in ("", "on", "true", "1", "yes"):
        return SettingProblem(title="standard_conforming_strings stays on", hint="Write E'…' where escapes are meant.")
    if setting.name == "datestyle" and not is_iso(value):
        return SettingProblem(title="dates are written as ISO 8601 says", hint="SET datestyle = ISO.")
    if setting.name in _MACHINE or setting.name.startswith("dither_views."):
        return SettingProblem(title=f"{setting.name} can't be changed", hint="Leave it out.")
    return None


def is_iso(date_style: str) -> bool:
    """Whether a date style writes dates as ISO 8601 does, whatever order it reads them in."""
    parts = {part.strip() for part in date_style.lower().split(",")}
    return parts <= {"", "iso", "mdy", "dmy", "ymd", "us", "european", "euro", "noneuro"}
