"""Files beside the owner's data: typed copies of CSV files, and the record of what was looked at and accepted.

Both hold what the data says, so nobody but the owner may read them (0600, in a directory of 0700). They are written
under another name, flushed and renamed: what has the right name is whole. The name of a copy says whose it is, what it
is a copy of, and what its bytes add up to: one that was damaged is made anew. A copy that is in use is locked, and only
copies that nobody uses are removed, by the dataset that made them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dither.errors import SourceError
from dither.query.intake import TableReport

try:
    import fcntl
except ImportError:  # not a POSIX system: there files in use can't be removed anyway
    fcntl = None  # type: ignore[assignment]

MOST_VERSIONS = 200
"""So many accepted versions of each table are remembered; a table never pushes another one out."""
_NAME = re.compile(r"(.*?)(?:-([0-9a-f]{16})-[0-9a-f]{32})?-[0-9a-f]{32}\.copy\.parquet", re.DOTALL)
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
    """The directory of typed copies; others may keep theirs in it."""

    def __init__(self, folder: Path, owner: str) -> None:
        self.folder = folder
        self._owner = owner

    def hold(self, table: str, key: str, make: Callable[[Path], None]) -> Held:
        """The copy of a table, made if it isn't there, or isn't whole, by whoever comes first; others wait for it."""
        name = f"{_slug(table)}-{self._owner}-{key[:32]}"
        with _writing(self.folder):
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                for path in sorted(self.folder.glob(f"{name}-*.copy.parquet")):
                    if path.name == f"{name}-{_digest(path)}.copy.parquet":
                        return Held(path)
                    path.unlink()
                making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=self.folder))
                try:
                    made = making / "copy"
                    make(made)
                    made.chmod(0o600)
                    _flush(made)
                    path = self.folder / f"{name}-{_digest(made)}.copy.parquet"
                    made.rename(path)
                    _flush(self.folder)
                finally:
                    shutil.rmtree(making, ignore_errors=True)
                return Held(path)

    def clean(self, keep: set[Path], *, table: str | None = None, owners: Iterable[str] = ()) -> bool:
        """Remove copies that nobody uses but those to keep; of one table, if it is named. Says whether none is left.

        Those of this owner and of the others named, and those of an older form, which nobody uses any more.
        """
        whose = {None, self._owner, *owners}
        if not self.folder.is_dir():
            return True
        left = False
        try:
            with self._alone():
                for path in list(self.folder.iterdir()):
                    if path.name.startswith(_MAKING):
                        # whoever made it would hold the lock
                        shutil.rmtree(path, ignore_errors=True)
                    elif (found := _NAME.fullmatch(path.name)) and found[2] in whose:
                        if path in keep or (table is not None and found[1] != _slug(table)):
                            left = True
                        else:
                            left |= not _remove(path)
                if not any(self.folder.iterdir()):
                    self.folder.rmdir()
        except OSError:
            return False
        return not left

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """As the only process that makes or removes copies."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(descriptor, exclusive=True)
            yield
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A version of a table that was accepted: what was found in it, and what tells the files that were looked at."""

    report: TableReport
    seen: str


class AcceptedRecord:
    """The file that remembers which versions of which tables were looked at, and what was found."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def found(self, key: str) -> Accepted | None:
        """What is known of a version that was accepted; None where nothing is, or where the file can't be read."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            entry = self._form()["accepted"][key]
            return Accepted(TableReport.from_json(entry), str(entry["seen"]))
        return None

    def add(self, accepted: Mapping[str, Accepted]) -> None:
        """Remember that versions were accepted. Where that can't be written, they are looked at again next time."""
        if not accepted:
            return
        new = {key: {**one.report.to_json(), "seen": one.seen} for key, one in accepted.items()}
        # what is looked at again becomes the last
        self._change(lambda form: {"accepted": _latest({**_without(form["accepted"], new), **new})})

    def places(self, dataset: str) -> list[tuple[Path, str]]:
        """The directories in which a dataset has kept copies, and under which owner."""
        return [(Path(folder), owner) for name, folder, owner in self._places() if name == dataset]

    def keep_place(self, dataset: str, folder: Path, owner: str) -> None:
        """Remember where copies are about to be kept."""
        place = [dataset, str(folder), owner]
        if place not in self._places():
            self._change(lambda form: {"copies": [*form["copies"], place]})

    def drop_places(self, dataset: str, gone: Iterable[tuple[Path, str]]) -> None:
        """Forget directories in which no copy is left."""
        places = [[dataset, str(folder), owner] for folder, owner in gone]
        if any(place in places for place in self._places()):
            self._change(lambda form: {"copies": [place for place in form["copies"] if place not in places]})

    def _places(self) -> list[list[str]]:
        return [place for place in self._form()["copies"] if isinstance(place, list) and len(place) == 3]

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replace parts of what is recorded, one process at a time; where it can't be written, it stays as it is."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _lock(descriptor, exclusive=True)
                form = self._form()
                self._write(json.dumps({**form, **change(form)}, indent=1).encode())
            finally:
                os.close(descriptor)

    def _form(self) -> dict[str, Any]:
        form: Any = {}
        if self._path is not None:
            with contextlib.suppress(OSError, ValueError):
                form = json.loads(self._path.read_bytes())
        if not isinstance(form, dict) or form.get("format") != 1:
            form = {}
        accepted, copies = form.get("accepted"), form.get("copies")
        return {
            "format": 1,
            "accepted": accepted if isinstance(accepted, dict) else {},
            "copies": copies if isinstance(copies, list) else [],
        }

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


def versions(files: tuple[Path, ...]) -> list[tuple[str, int, int]]:
    """What tells the version of the data: names, sizes and times of change."""
    return [(name, size, changed) for name, size, changed, _ in looked_at(files)]


def looked_at(files: tuple[Path, ...]) -> list[tuple[str, int, int, int]]:
    """What tells whether files are those that were looked at: names, sizes, times of change of content and of facts.

    The last isn't part of the data's version. It tells a file from another one that was given the same time, and it
    changes with a file's permissions too: then it is looked at again, and stays accepted.
    """
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            facts = file.stat()
            found.append((file.name, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return found


def _without(entries: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    gone = set(keys)
    return {key: entry for key, entry in entries.items() if key not in gone}


def _latest(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The last versions of each table."""
    of_table: Counter[str] = Counter()
    kept = []
    for key, entry in reversed(list(entries.items())):
        table = str(entry.get("table")) if isinstance(entry, dict) else ""
        of_table[table] += 1
        if of_table[table] <= MOST_VERSIONS:
            kept.append((key, entry))
    return dict(reversed(kept))


def _slug(table: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", table)[:40]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _lock(descriptor: int, *, exclusive: bool) -> None:
    # a file system without locks: then files are only ever replaced by equal ones
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


def _remove(path: Path) -> bool:
    """Whether it is gone: what is in use stays."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        path.unlink(missing_ok=True)
        return True
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
