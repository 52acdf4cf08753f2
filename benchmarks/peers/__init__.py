"""Work done by other libraries, each in an environment of its own; see README.md."""

from __future__ import annotations

import atexit
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".venv-peers"


class PeerError(Exception):
    """What went wrong inside of a peer."""


class Peer:
    """The process of one peer: it makes pieces of work, and does them when it is asked to."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [str(python), str(HERE / "worker.py"), str(HERE / f"{name.replace('-', '_')}_works.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._stop)

    def ask(self, **wanted: Any) -> dict[str, Any]:
        """Send one line, wait for the one that answers it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self.name} has ended")
        told: dict[str, Any] = json.loads(line)
        if "problem" in told:
            raise PeerError(f"{self.name}: {told['problem']}")
        return told

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


class PeerWork:
    """A piece of work of a peer; ``nanoseconds`` is what the last time took, by the peer's own clock."""

    def __init__(self, peer: Peer, number: int) -> None:
        self._peer, self._number = peer, number
        self.nanoseconds = 0
        self.value: Any = None

    def __call__(self) -> Any:
        told = self._peer.ask(do=self._number)
        self.nanoseconds, self.value = int(told["nanoseconds"]), told["value"]
        return self.value


@cache
def peer(name: str) -> Peer | None:
    """The running peer, or None if it isn't installed: ``make peers``."""
    python = ENVIRONMENTS / name / "bin" / "python"
    return Peer(name, python) if (ENVIRONMENTS / name / ".made").exists() else None


def work(name: str, what: str, **arguments: Any) -> PeerWork | None:
    """A piece of work, made by the function ``what`` of the peer's script; None if the peer isn't installed."""
    found = peer(name)
    return None if found is None else PeerWork(found, int(found.ask(make=what, arguments=arguments)["number"]))
