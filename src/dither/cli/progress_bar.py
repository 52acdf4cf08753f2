"""A progress bar for long work: on the error stream, and only where somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from dither.progress import Watch, unwatched


@contextmanager
def bar() -> Iterator[Watch]:
    """A watch that moves a bar, which is gone when the block ends, however it ends."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        # a bar that is disabled still ends with an empty line in older versions of rich
        yield unwatched
        return
    columns = (BarColumn(bar_width=30), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share, doing: progress.update(task, completed=share, description=doing)
