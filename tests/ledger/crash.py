"""Processes that die: run as a script by the tests, so that everything is imported once and workers are forked.

    crash.py points DIRECTORY EVERY [MUTANT]   SIGKILL before and after every change, commit, write and flush of one
                                               question, or at every so many, and at the first of each name
    crash.py fuzz DIRECTORY KILLS              several workers, killed at random moments
    crash.py rush DIRECTORY                    four processes, 200 requests, a budget for ten

Prints one JSON object. More kills by command: ``python tests/ledger/crash.py fuzz /some/directory 5000``.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

from dither.errors import LedgerBusy, LedgerError, OutOfBudget
from dither.ledger import Account, Amount, Currency, Limit, SqliteLedger
from dither.privacy import Adjacency, PureLoss

DATASET = Account(("shop",))
PRICE = Amount(10**9, 0)
LOSS = PureLoss("0.001")


def key(question):
    return sha256(str(question).encode()).hexdigest()


def open_ledger(directory):
    return SqliteLedger.open(
        directory / "ledger.db",
        currency=Currency.PURE,
        adjacency=Adjacency.ADD_REMOVE,
        unit="each row",
        dataset="shop",
        head=directory / "head",
    )


def spent(ledger):
    return {str(balance.account): balance.spent.main // PRICE.main for balance in ledger.balances()}


def in_child(work):
    """Fork, work, and tell how the child ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 a child must never go on as if it were the parent
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return child


# ------------------------------------------------------------------ every step


class Fuse:
    """Kills the process at the n-th step; steps are changes, commits, head writes and flushes, before and after.

    All names are logged, a line each.
    """

    def __init__(self, steps, log):
        self.left, self.log = steps, log

    def step(self, name):
        # names are the beginnings of statements, which may have several lines
        os.write(self.log, f"{' '.join(name.split())}\n".encode())
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name, act):
        def stepped(*arguments, **named):
            self.step(f"before {name}")
            result = act(*arguments, **named)
            self.step(f"after {name}")
            return result

        return stepped

    def light(self):
        fuse, connect = self, sqlite3.connect

        class Stepped(sqlite3.Connection):
            def execute(self, statement, *arguments):
                if statement.startswith("SELECT"):
                    return super().execute(statement, *arguments)
                fuse.step(f"before {statement.split('(')[0][:40]}")
                cursor = super().execute(statement, *arguments)
                fuse.step(f"after {statement.split('(')[0][:40]}")
                return cursor

        sqlite3.connect = lambda *arguments, **named: connect(*arguments, factory=Stepped, **named)
        for name in ("pwrite", "fsync"):
            setattr(os, name, fuse.around(name, getattr(os, name)))
        from dither.ledger import head

        head.flush = fuse.around("fdatasync", head.flush)


def one_question(directory, out):
    """Open, ask, run, record, release: what is written to ``out`` has left."""
    ledger = open_ledger(directory)
    ledger.set_limits({DATASET: Limit(5 * PRICE.main, 0, Currency.PURE)})
    reservation = ledger.reserve(key=key(1), account=Account(("shop", "ana")), loss=LOSS, note={"n": 1})
    if reservation.answer is None:
        os.write(out, b"ran ")
        reservation = ledger.record(reservation, os.urandom(8).hex().encode())
    os.write(out, b"released:" + reservation.answer + b" ")
    ledger.close()


def charge_late(directory, out):
    """A mutant: runs before the reservation is durable."""
    ledger = open_ledger(directory)
    ledger.set_limits({DATASET: Limit(5 * PRICE.main, 0, Currency.PURE)})
    os.write(out, b"ran ")
    reservation = ledger.reserve(key=key(1), account=Account(("shop", "ana")), loss=LOSS, note={"n": 1})
    os.write(out, b"released:" + ledger.record(reservation, b"1").answer + b" ")


def release_early(directory, out):
    """A mutant: releases what isn't recorded yet."""
    ledger = open_ledger(directory)
    ledger.set_limits({DATASET: Limit(5 * PRICE.main, 0, Currency.PURE)})
    reservation = ledger.reserve(key=key(1), account=Account(("shop", "ana")), loss=LOSS, note={"n": 1})
    os.write(out, b"released:1 ")
    ledger.record(reservation, b"1")


def head_first(directory, out):
    """A mutant: the head is written before the commit, so that a crash in between looks like a rollback."""
    ledger = open_ledger(directory)
    work = ledger._writer._one

    def hasty(job):
        work(job)
        ledger._guard._known = None
        ledger._guard.advance()

    ledger._writer._one = hasty
    ledger.set_limits({DATASET: Limit(5 * PRICE.main, 0, Currency.PURE)})


MUTANTS = {"": one_question, "charge_late": charge_late, "release_early": release_early, "head_first": head_first}


def points(root, every, mutant=""):
    """Die at steps in turn; after each death the next process must find everything in order."""
    (root / "before").mkdir()
    # what a process learns once, children have from here
    open_ledger(root / "before").close()
    steps, died, _ = die(root / "none", 0, mutant)
    assert not died
    # what the mutants get wrong comes after the tables are made
    first = 85 if mutant else 1
    places = {first + 1 + steps[first:].index(name) for name in steps[first:]} | {*range(first, len(steps) + 1, every)}
    for place in sorted(places):
        directory = root / f"point-{place}"
        names, died, left = die(directory, place, mutant)
        assert died
        assert names == steps[:place]
        inspect(directory, names[-1], left)
    return {"steps": Counter(steps), "names": Counter(steps[place - 1] for place in places)}


def die(directory, place, mutant):
    """A question in a process that dies at this step: the names of its steps, whether it died, and what had left."""
    directory.mkdir()
    read, write = os.pipe()
    log = os.open(directory / "steps", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def doomed():
        Fuse(place, log).light()
        MUTANTS[mutant](directory, write)

    _, status = os.waitpid(in_child(doomed), 0)
    os.close(log)
    died = os.WIFSIGNALED(status)
    assert died or status == 0, status
    os.close(write)
    left = os.read(read, 1000).decode()
    os.close(read)
    return (directory / "steps").read_text().splitlines(), died, left


def inspect(directory, name, left):
    released = [word.split(":")[1] for word in left.split() if word.startswith("released:")]
    with open_ledger(directory) as ledger:
        ledger.verify()
        before = spent(ledger)
        receipt = ledger.find(key(1))
        if "ran" in left or released:
            assert receipt is not None, f"{name}: ran without a charge"
        assert before.get("shop", 0) == before.get("shop/ana", 0) == (receipt is not None), name
        ledger.set_limits({DATASET: Limit(5 * PRICE.main, 0, Currency.PURE)})
        again = ledger.reserve(key=key(1), account=Account(("shop", "ana")), loss=LOSS, note={}, timeout=0)
        assert (again.charged == Amount()) == (receipt is not None), f"{name}: paid twice or never"
        if released:
            assert again.answer == released[0].encode(), f"{name}: released something else than is on record"
        if again.answer is None:
            ledger.record(again, b"later")
        assert spent(ledger) == {"shop": 1, "shop/ana": 1}, name
        verified = ledger.verify()
        assert verified.adopted == 0
    assert not list((directory / "ledger.db.owners").iterdir()), "signs of the dead were left"


# ------------------------------------------------------------------ random moments

LINE = 25
"""About the length of a line that tells of an answer."""


def worker(directory, seed, out):
    ledger, chance = open_ledger(directory), random.Random(seed)
    while True:
        # a window that moves on with what was told: workers meet at the same questions, and at those that the dead left
        # open, however slow the machine is
        question, who = os.fstat(out).st_size // LINE + chance.randrange(30), chance.choice(["ana", "bob", "eve"])
        try:
            asked = ledger.reserve(key=key(question), account=Account(("shop", who)), loss=LOSS, note={}, timeout=5)
            if asked.answer is None:
                if chance.random() < 0.1:
                    ledger.fail(asked, "on purpose")
                    continue
                time.sleep(chance.random() * 0.002)
                asked = ledger.record(asked, os.urandom(8).hex().encode())
        except (OutOfBudget, LedgerBusy):
            os.write(out, b"refused\n")
            time.sleep(0.001)
            continue
        os.write(out, f"{question} {who} {asked.answer.decode()}\n".encode())


def fuzz(root, kills, workers=3):
    chance = random.Random(7)
    out = os.open(root / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    with open_ledger(root) as ledger:
        limits = {DATASET: 5000, Account(("shop", "ana")): 700, Account(("shop", "eve")): 60}
        ledger.set_limits({account: Limit(n * PRICE.main, 0, Currency.PURE) for account, n in limits.items()})
    begun = 0

    def start():
        nonlocal begun
        begun += 1
        return in_child(lambda seed=begun: worker(root, seed, out))

    living = [start() for _ in range(workers)]
    for _ in range(kills):
        # by progress, of whichever of them, and not by the clock: on a busy machine all would die before they asked
        enough = os.fstat(out).st_size + chance.randrange(8 * LINE)
        while os.fstat(out).st_size < enough:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.01)
        place = chance.randrange(workers)
        os.kill(living[place], signal.SIGKILL)
        _, status = os.waitpid(living[place], 0)
        assert os.WIFSIGNALED(status), "a worker ended by itself"
        living[place] = start()
    for child in living:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return judge(root, limits)


def judge(root, limits):
    lines = (root / "out").read_text().splitlines()
    released, told = {}, Counter()
    for line in lines:
        if line == "refused":
            told["refused"] += 1
            continue
        question, who, answer = line.split()
        told["released"] += 1
        assert released.setdefault(question, answer) == answer, "two answers to one question"
    with open_ledger(root) as ledger:
        verified = ledger.verify()
        paid = Counter()
        kinds = Counter(entry.kind.value for entry in ledger.entries())
        for entry in ledger.entries():
            for payer in entry.body.get("payers", ()):
                paid["/".join(payer)] += 1
        assert spent(ledger) == dict(paid), "balances aren't exact"
        assert all(paid[str(account)] <= limit for account, limit in limits.items())
        for line in lines:
            if line != "refused":
                question, who, answer = line.split()
                receipt = ledger.find(key(question), Account(("shop", who)))
                assert receipt is not None, "an answer without a spend"
        for question, answer in released.items():
            stored = ledger.reserve(key=key(question), account=DATASET, loss=LOSS, note={}, timeout=0)
            assert stored.answer == answer.encode(), "released and not on record"
            assert stored.charged == Amount()
    return {"entries": verified.entries, "paid": paid, "kinds": kinds, "distinct": len(released), **told}


# ------------------------------------------------------------------ a rush


def rush(root, processes=4, requests=50):
    with open_ledger(root) as ledger:
        ledger.set_limits({DATASET: Limit(10 * PRICE.main, 0, Currency.PURE)})
    read, write = os.pipe()

    def ask(number):
        with open_ledger(root) as ledger:
            for request in range(requests):
                try:
                    asked = ledger.reserve(key=key((number, request)), account=DATASET, loss=LOSS, note={})
                    ledger.record(asked, b"x")
                    os.write(write, b"answered ")
                except OutOfBudget:
                    os.write(write, b"refused ")

    children = [in_child(lambda number=number: ask(number)) for number in range(processes)]
    ended = [os.waitpid(child, 0)[1] for child in children]
    os.close(write)
    told = Counter()
    while chunk := os.read(read, 65536):
        told.update(chunk.decode().split())
    with open_ledger(root) as ledger:
        ledger.verify()
        return {"ended": ended, "spent": spent(ledger), **told}


def inherited(root):
    """The child of a process with an open ledger: may not use it, and doesn't keep its parent's claims alive."""
    with open_ledger(root) as ledger:
        ledger.set_limits({DATASET: Limit(10 * PRICE.main, 0, Currency.PURE)})
    read, write = os.pipe()
    said_read, said_write = os.pipe()

    def parent():
        ledger = open_ledger(root)
        ledger.reserve(key=key(1), account=DATASET, loss=LOSS, note={})

        def child():
            try:
                ledger.reserve(key=key(2), account=DATASET, loss=LOSS, note={})
            except LedgerError as problem:
                os.write(said_write, str(problem).encode())
            ledger.close()
            time.sleep(60)

        number = in_child(child)
        os.write(write, f"{number} ".encode() + os.read(said_read, 1000))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(parent), 0)
    child, _, said = os.read(read, 1000).decode().partition(" ")
    try:
        with open_ledger(root) as ledger:
            redeemed = ledger.reserve(key=key(1), account=DATASET, loss=LOSS, note={}, timeout=0)
            ledger.record(redeemed, b"x")
            ledger.verify()
        return {"said": said, "charged": redeemed.charged.main, "ran": redeemed.answer is None}
    finally:
        os.kill(int(child), signal.SIGKILL)


if __name__ == "__main__":
    command, place, more = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    commands = {
        "points": lambda root, every, *mutant: points(root, int(every), *mutant),
        "rush": rush,
        "inherited": inherited,
        "fuzz": lambda root, kills: fuzz(root, int(kills)),
    }
    print(json.dumps(commands[command](place, *more)))
