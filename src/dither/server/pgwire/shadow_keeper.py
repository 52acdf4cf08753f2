"""Keeps a shadow PostgreSQL as long as the server lives, and not a moment longer.

A program of its own: the server starts it with a pipe as its standard input and never writes to it. When the pipe
closes, because the server stopped or because it was killed, this ends PostgreSQL and removes its directory. It imports
nothing of dither, so that it starts at once.

Arguments: the directory, the user's number or -1 to keep one's own, the bytes of memory that each process may use,
and PostgreSQL's command line.
"""

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

LARGEST_FILE = 1 << 30


def main(arguments: list[str]) -> int:
    """Run PostgreSQL until it ends or standard input does."""
    directory, user, memory, *command = arguments
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the server decides when this ends, also when Ctrl-C goes to every process of a terminal
        signal.signal(ignored, signal.SIG_IGN)
    for what, most in (
        (resource.RLIMIT_AS, int(memory)),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    os.chdir("/")
    owner = None if int(user) < 0 else int(user)
    with (Path(directory) / "log").open("ab") as log:
        postgres = subprocess.Popen(  # noqa: S603 - the command is the server's own
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"LC_ALL": "C", "PGTZ": "UTC"},
            restore_signals=True,
            start_new_session=True,
            user=owner,
            group=owner,
            extra_groups=None if owner is None else [],
        )
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if postgres.poll() is None:
        select.select([sys.stdin.buffer, ended], [], [])
    if postgres.poll() is None:
        # at once and without saving anything: there is nothing to save
        postgres.send_signal(signal.SIGQUIT)
        try:
            postgres.wait(10)
        except subprocess.TimeoutExpired:
            postgres.kill()
    status = postgres.wait()
    shutil.rmtree(directory, ignore_errors=True)
    return 0 if status in (0, -signal.SIGQUIT) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
