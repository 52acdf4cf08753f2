"""Servers that are meant to be killed: run as a script, so that everything is imported once and servers are forked.

    nursery.py POLICY [MUTANT]

Reads orders from standard input, one a line: ``http`` and ``both`` start a server (the second with the PostgreSQL
protocol) and print its process id and then, in a second line, its ports as JSON; ``reap PID`` waits for the end of one.
"""

import contextlib
import json
import os
import sys
from dataclasses import replace

import pandas as pd  # noqa: F401 everything that a server imports is here before the first fork
import uvloop  # noqa: F401

import dither.server.app
import dither.server.pgwire.server
import dither.server.traffic.timeouts
import dither.server.web.pages  # noqa: F401
from dither.ledger import SqliteLedger
from dither.policy import Policy
from dither.server.limits import ServerLimits
from dither.server.run import Address, serve


def forgetful(ledger, reservation, answer):
    """A mutant of ``record``: the answer goes out without having been written."""
    ledger.give_up(reservation)
    return replace(reservation, answer=answer)


def say(line):
    os.write(1, f"{line}\n".encode())


def start(policy, pg_port):
    child = os.fork()
    if child:
        return child
    try:
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        limits = ServerLimits(rate=1e6, burst=10**6)

        def started(server):
            say(json.dumps({"url": server.url, "pg_port": server.pg_port}))

        serve(policy, Address(port=0, pg_port=pg_port), started=started, limits=limits)
    except BaseException:  # noqa: BLE001 a child must never go on as if it were the parent
        sys.excepthook(*sys.exc_info())
    say("ended")
    os._exit(1)


def main(path, mutant=""):
    if mutant:
        SqliteLedger.record = forgetful
    policy = Policy.load(path)
    for order in sys.stdin:
        what, *rest = order.split()
        if what == "reap":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(rest[0]), 0)
            say("reaped")
        else:
            say(start(policy, 0 if what == "both" else None))


if __name__ == "__main__":
    main(*sys.argv[1:])
