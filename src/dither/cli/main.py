"""The ``dither`` command. Whatever takes long to load is loaded in ``main``, where an interrupt is expected."""

from __future__ import annotations

import os
import signal
import sys
from _thread import get_ident, interrupt_main
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dither.errors import DitherError

if TYPE_CHECKING:
    from dither.cli.commands import app as app

STOPPED = 130
GONE = 141
# Seconds until an interrupt that was swallowed comes again: more than a callback takes.
AGAIN = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 for an error that is explained, 2 for bad usage, 130 if stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _interrupts_kept():
            result = _run(given)
    except DitherError as problem:
        from dither.cli.screen import explain

        explain(problem)
        return 1
    except KeyboardInterrupt:
        result = STOPPED
    except BrokenPipeError:
        # the reader of the pipe is gone (SIGPIPE); closing it must not fail a second time
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GONE
    if result == STOPPED:
        # some versions of typer make an exit status of an interrupt by themselves
        told = ". If the question was charged already, the same question again is free" if "ask" in given[:1] else ""
        print(f"dither: stopped{told}", file=sys.stderr)
    return result


def _run(arguments: list[str]) -> int:
    """The exit status of a command."""
    import typer

    from dither.cli.commands import MISTYPED, app

    try:
        result = app(arguments, standalone_mode=False, prog_name="dither")
    except MISTYPED as problem:
        problem.show()
        return int(problem.exit_code)
    except typer.Abort:
        return STOPPED
    return result if isinstance(result, int) else 0


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """No interrupt is lost in this block.

    Python runs a callback for every module that it loads. An interrupt that arrives in one is printed with its trace,
    and the command would go on: instead it is raised again when the callback has ended.
    """
    from threading import Timer

    before, waiting = sys.unraisablehook, []

    def after_a_callback(problem: sys.UnraisableHookArgs) -> None:
        if not issubclass(problem.exc_type, KeyboardInterrupt):
            before(problem)
            return
        again = Timer(AGAIN, _interrupt, [get_ident()])
        again.daemon = True
        waiting.append(again)
        again.start()

    sys.unraisablehook = after_a_callback
    try:
        yield
    finally:
        sys.unraisablehook = before
        for again in waiting:
            again.cancel()


def _interrupt(thread: int) -> None:
    """What Ctrl-C does; to the thread, where that is possible, so that it wakes if it waits."""
    if sys.platform == "win32":
        interrupt_main()
    else:
        signal.pthread_kill(thread, signal.SIGINT)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "app":
            from dither.cli.commands import app

            return app
        raise AttributeError(f"module 'dither.cli.main' has no attribute {name!r}")


if __name__ == "__main__":
    sys.exit(main())
