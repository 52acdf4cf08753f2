"""Making files durable: what was written, and the names it was written under, must outlast a power cut."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# where there is such a thing, fsync leaves data in the drive's own cache
_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def flush(descriptor: int) -> None:
    """Make the content of an open file durable, whoever wrote it."""
    if _FULL is not None:
        fcntl.fcntl(descriptor, _FULL)
    else:
        getattr(os, "fdatasync", os.fsync)(descriptor)


def flush_file(path: Path) -> None:
    """Make a file's content durable; does nothing if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and what is missing above it, durably and for the owner alone."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    flush_directory(path.parent)
