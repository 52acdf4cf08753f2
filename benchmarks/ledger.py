"""The ledger as it grows: opening it, and charging one question, with few entries and with many.

    python benchmarks/ledger.py --entries 1000000

Filling is done in large transactions that aren't flushed; what is measured is a ledger opened as anybody opens it, in a
process of its own.
"""

# ruff: noqa: SLF001 a million flushed commits would take an hour, so the ledger is filled from within

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from dither.ledger import Account, Currency, Limit, SqliteLedger
from dither.privacy import Adjacency, ZcdpLoss

SHOP, ANA = Account(("shop",)), Account(("shop", "ana"))
LOSS = ZcdpLoss("1/1000000")
KEPT_FOR = {"currency": Currency.ZCDP, "adjacency": Adjacency.ADD_REMOVE, "unit": "each id", "dataset": "shop"}
MEASURE = """
import sys, time
sys.path.insert(0, {here!r})
from ledger import opened, ask
start = time.perf_counter()
book = opened({place!r})
print(time.perf_counter() - start)
for n in range(50):
    start = time.perf_counter()
    ask(book, ("measured", {count}, n))
    print(time.perf_counter() - start)
book.close()
"""


def opened(place):
    return SqliteLedger.open(place, **KEPT_FOR, head=f"{place}.head")


def key(question):
    return hashlib.sha256(repr(question).encode()).hexdigest()


def ask(book, question):
    return book.record(book.reserve(key=key(question), account=ANA, loss=LOSS, note={"sql": "SELECT 1"}), b"x" * 300)


def fill(place, entries, already):
    """Two entries a question, by the ledger's own rules, a thousand questions to a transaction."""
    with opened(place) as book:
        book._db.execute("PRAGMA synchronous = OFF")
        book.set_limits({SHOP: Limit.zcdp(1000, 0)})
        request = book._request(key("0"), ANA, LOSS, {"sql": "SELECT 1"})
        done = already
        while done < entries:

            def work(first=done):
                for n in range(first, min(first + 2000, entries), 2):
                    object.__setattr__(request, "key", key(n))
                    given = book._books.reserve(request)
                    book._books.record(given, b"x" * 300)

            book._writer.run(work)
            done += 2000
            print(f"\r{done:,} entries", end="", file=sys.stderr)
    print(file=sys.stderr)
    return done


def measured(place, count):
    here = str(Path(__file__).resolve().parent)
    program = MEASURE.format(here=here, place=str(place), count=count)
    lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    return float(lines[0]), median(float(line) for line in lines[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    wanted = parser.parse_args().entries
    with tempfile.TemporaryDirectory() as folder:
        place, done = Path(folder) / "ledger.db", 0
        print("| entries | open, s | charge and record, ms | file, MiB |\n| --- | --- | --- | --- |")
        for count in sorted({1000, wanted // 10, wanted}):
            start = time.perf_counter()
            done = fill(place, count, done)
            filling = time.perf_counter() - start
            opening, charging = measured(place, count)
            size = place.stat().st_size / 2**20
            print(f"| {count:,} | {opening:.3f} | {1000 * charging:.2f} | {size:.0f} | (filled in {filling:.0f} s)")


if __name__ == "__main__":
    main()
