"""Starts a shadow PostgreSQL, and stops it when the server exits, however that happens.

A program of its own: the server starts it with a pipe as its standard input and never writes to it. When the pipe
closes, because the server stopped or because it was killed, this ends PostgreSQL and removes its directory. It imports
nothing of dither, so that it starts at once.

Arguments: the directory, which holds the file ``settings``; the number of the user as whom PostgreSQL runs, or -1 to
keep one's own; the bytes of memory that each process may use; the directory of PostgreSQL's programs; the name of the
superuser.
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
MOST_SAID = 500


class Keeper:
    """Runs programs until they end, or until the server does."""

    def __init__(self, directory: Path, user: int) -> None:
        self._directory, self._user = directory, None if user < 0 else user
        self._ended, tell = os.pipe()
        os.set_blocking(self._ended, False)
        os.set_blocking(tell, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(tell)

    def run(self, *command: str) -> bool:
        """Whether a program ended well by itself; otherwise it failed, or the server is gone and it was ended."""
        with (self._directory / "log").open("ab") as log:
            program = subprocess.Popen(  # noqa: S603 - the command is the server's own
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env={"LC_ALL": "C", "PGTZ": "UTC"},
                start_new_session=True,
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else [],
            )
        while program.poll() is None:
            ready, _, _ = select.select([sys.stdin.buffer, self._ended], [], [])
            if sys.stdin.buffer in ready:
                self._end(program)
                return False
            with contextlib.suppress(BlockingIOError):
                os.read(self._ended, 100)
        return program.returncode == 0

    @staticmethod
    def _end(program: "subprocess.Popen[bytes]") -> None:
        # it and what it started, at once and without saving anything: there is nothing to save
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGQUIT)
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def main(arguments: list[str]) -> int:
    """Make a cluster and run PostgreSQL until it ends or standard input does."""
    directory, user, memory, programs, superuser = arguments
    place = Path(directory)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the server decides when this ends, also when Ctrl-C goes to every process of a terminal
        signal.signal(ignored, signal.SIG_IGN)
    _limit(resource.RLIMIT_FSIZE, LARGEST_FILE)
    _limit(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError):
        # should the machine run out of memory, this is what it can do without
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    os.chdir("/")
    # questions about data come first
    os.nice(10)
    data = place / "data"
    making = ["-D", str(data), "-U", superuser, "--auth=trust", "--encoding=UTF8", "--locale=C"]
    try:
        keeper = Keeper(place, int(user))
        done = keeper.run(f"{programs}/initdb", *making, "--no-sync", "--no-instructions")
        if done:
            with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
                file.write((place / "settings").read_text(encoding="utf-8"))
            (data / "pg_hba.conf").write_text("local all all trust\n", encoding="utf-8")
            # only now: initdb tries how much it can get, and then needs a little more
            _limit(resource.RLIMIT_AS, int(memory))
            done = keeper.run(f"{programs}/postgres", "-D", str(data))
        if not done:
            sys.stderr.buffer.write((place / "log").read_bytes()[-MOST_SAID:])
    except PermissionError:
        sys.stderr.write("the user as whom PostgreSQL runs may not run its programs; start the server as another user")
        done = False
    shutil.rmtree(place, ignore_errors=True)
    return 0 if done else 1


def _limit(what: int, most: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
