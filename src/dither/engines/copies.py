"""Files beside the owner's data: typed copies of CSV files, and the record of what was looked at and accepted.

Both hold what the data says, so nobody but the owner may read them (0600, in a directory of 0700). They are written
under another name, flushed and renamed: what has the right name is whole. A copy that is in use is locked, and only
copies that nobody uses are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dither.engines.intake import TableReport
from dither.errors import SourceError

try:
    import fcntl
except ImportError:  # not a POSIX system: there files in use can't be removed anyway
    fcntl = None  # type: ignore[assignment]

MOST_RECORDS = 200
_NAME = re.compile(r".*-[0-9a-f]{32}\.copy\.parquet", re.DOTALL)
_MAKING = ".making-"


class Held:
    """A copy that is in use: as long as this exists, no process removes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _lock(self._descriptor, exclusive=False)

    def release(self) -> None:
        """Let it be removed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.release()


class Copies:
    """The directory of typed copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, table: str, key: str, make: Callable[[Path], None]) -> Held:
        """The copy of a table, made if it isn't there by whoever comes first; others wait for it."""
        path = self.folder / f"{_slug(table)}-{key[:32]}.copy.parquet"
        with _writing(self.folder):
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                if not path.exists():
                    making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=self.folder))
                    try:
                        make(making / "copy")
                        (making / "copy").chmod(0o600)
                        _flush(making / "copy")
                        (making / "copy").rename(path)
                        _flush(self.folder)
                    finally:
                        shutil.rmtree(making, ignore_errors=True)
                return Held(path)

    def clean(self, keep: set[Path], *, table: str | None = None) -> None:
        """Remove copies that nobody uses but those to keep; of one table, if it is named. Other files stay."""
        if not self.folder.is_dir():
            return
        with contextlib.suppress(OSError), self._alone():
            for path in list(self.folder.iterdir()):
                if path.name.startswith(_MAKING):
                    # whoever made it would hold the lock
                    shutil.rmtree(path, ignore_errors=True)
                elif path not in keep and _is_copy(path, table):
                    _remove(path)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """As the only process that makes or removes copies."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(descriptor, exclusive=True)
            yield
        finally:
            os.close(descriptor)


class Record:
    """The file that remembers which versions of which tables were looked at, and what was found."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def found(self, key: str) -> TableReport | None:
        """The report of a version that was accepted; None where there is none, or where the file can't be read."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return TableReport.from_json(self._entries()[key])
        return None

    def add(self, reports: Mapping[str, TableReport]) -> None:
        """Remember that versions were accepted. Where that can't be written, they are looked at again next time."""
        if self._path is None or not reports:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _lock(descriptor, exclusive=True)
                entries = {**self._entries(), **{key: report.to_json() for key, report in reports.items()}}
                kept = dict(list(entries.items())[-MOST_RECORDS:])
                self._write(json.dumps({"format": 1, "accepted": kept}, indent=1).encode())
            finally:
                os.close(descriptor)

    def _entries(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            form = json.loads(self._path.read_bytes())
            entries = form["accepted"] if form["format"] == 1 else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def _write(self, data: bytes) -> None:
        assert self._path is not None
        descriptor, name = tempfile.mkstemp(prefix=f".{self._path.name}-", dir=self._path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _flush(self._path.parent)


def key_of(*parts: Any) -> str:
    """The same for the same parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def looked_at(files: tuple[Path, ...]) -> list[tuple[str, int, int, int]]:
    """What tells whether files are those that were looked at: names, sizes, times of change of content and of facts.

    The last isn't part of the data's version. It tells a file from another one that was given the same time.
    """
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            facts = file.stat()
            found.append((file.name, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return found


def _slug(table: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", table)[:40]


def _is_copy(path: Path, table: str | None) -> bool:
    return _NAME.fullmatch(path.name) is not None and (table is None or path.name.startswith(f"{_slug(table)}-"))


def _lock(descriptor: int, *, exclusive: bool) -> None:
    # a file system without locks: then files are only ever replaced by equal ones
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


def _remove(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise SourceError(
            f"a copy of the data can't be kept in {folder} ({problem.strerror}): name another place under [source], as "
            'copies = "/data/copies", or write copies = false'
        ) from None
