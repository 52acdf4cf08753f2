"""How many people a second local protocols randomise and count, beside other libraries, in one run.

Run with ``python benchmarks/local.py``. One operation is one person: a report drawn with cryptographic randomness and
counted, without the final estimate. Peers are measured with fewer people, since they work one by one in Python; times
are medians of interleaved repeats on the same machine. The note has the mean square error over what theory states.
Peers need ``pure-ldp==1.2.0 multi-freq-ldpy==0.2.5 statsmodels "xxhash<4"``; those that don't install or don't run are
reported as such. Results go to ``benchmarks/results/local.json``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dither.local.core.protocol import Protocol
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.oracle import FrequencyOracle
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.local.lab.simulation import zipf_shares
from dither.local.means.mean import LocalMean
from dither.local.means.noisy import OneBitMean
from dither.local.means.piecewise import PiecewiseMean
from dither.local.rappor.protocol import Rappor, RapporAggregator
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.hadamard import HadamardSketch
from dither.local.sketches.sketch import HashedSketch
from measure import Row, Work, interleaved, run

RESULTS = Path(__file__).parent / "results" / "local.json"
EPSILON = 1
# So many estimated shares make a mean square error that is good to 2%.
SHARES = 6_000

Peer = Callable[[list[int], int], Work]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One protocol: how many people are taken for ours and for each peer, and what is to be reached."""

    name: str
    domain: int
    protocol: Protocol
    people: int
    goal: str
    peers: dict[str, tuple[Peer, int]] = field(default_factory=dict)


# ------------------------------------------------------------------ peers


def one_by_one(client: Any, server: Any, values: list[int]) -> Work:
    def work() -> None:
        for value in values:
            server.aggregate(client.privatise(value))

    return work


def pure_ldp(kind: str, values: list[int], domain: int) -> Work:
    module = importlib.import_module("pure_ldp.frequency_oracles")
    same = {"index_mapper": lambda value: value}
    if kind in ("cms", "hcms"):
        server = module.CMSServer(EPSILON, 1024, 1024, is_hadamard=kind == "hcms", **same)
        client = module.CMSClient(EPSILON, server.get_hash_funcs(), 1024, is_hadamard=kind == "hcms")
    elif kind == "rappor":
        server = module.RAPPORServer(0.5, 128, 2, domain, num_of_cohorts=8, **same)
        client = module.RAPPORClient(0.5, 128, server.get_hash_funcs(), num_of_cohorts=8, **same)
    else:
        names, more = {
            "kary": ("DE", {}),
            "oue": ("UE", {"use_oue": True}),
            "olh": ("LH", {"use_olh": True}),
        }[kind]
        client = getattr(module, f"{names}Client")(EPSILON, domain, **more, **same)
        server = getattr(module, f"{names}Server")(EPSILON, domain, **more, **same)
    return one_by_one(client, server, values)


def multi_freq(kind: str, values: list[int], domain: int) -> Work:
    name = {"kary": "GRR", "oue": "UE", "olh": "LH", "subset": "SS"}[kind]
    module = importlib.import_module(f"multi_freq_ldpy.pure_frequency_oracles.{name}")
    client, aggregate = getattr(module, f"{name}_Client"), getattr(module, f"{name}_Aggregator_MI")
    rest = (EPSILON,) if name == "UE" else (domain, EPSILON)

    def work() -> None:
        aggregate([client(value, domain, EPSILON) for value in values], *rest)

    return work


def peers_of(kind: str, pure: int | None, multi: int | None) -> dict[str, tuple[Peer, int]]:
    found: dict[str, tuple[Peer, int]] = {}
    if pure:
        found["pure-ldp"] = (partial(pure_ldp, kind), pure)
    if multi:
        found["multi-freq-ldpy"] = (partial(multi_freq, kind), multi)
    return found


# ------------------------------------------------------------------ ours


def counted(protocol: Protocol, values: Any) -> Work:
    return lambda: protocol.aggregator().add(protocol.randomize(values))


def error_over_theory(case: Case) -> str:
    """The mean square error of estimated shares over the mean of the variances that are stated."""
    rng, protocol, truth = np.random.default_rng(1), case.protocol, zipf_shares(case.domain)
    people = min(case.people, 20_000)
    if isinstance(protocol, FrequencyOracle):
        stated = [protocol.variance(people, share) for share in truth.tolist()]
    elif isinstance(protocol, HashedSketch):
        squares = float(np.sum(truth**2))
        stated = [protocol.variance(people, x, concentration=squares - x * x) for x in truth.tolist()]
    elif isinstance(protocol, Rappor):
        stated = []
    else:
        return ""
    errors, variances = [], []
    for _ in range(max(1, math.ceil(SHARES / case.domain))):
        values = rng.choice(case.domain, size=people, p=truth)
        if isinstance(protocol, HashedSketch):  # the hash functions are a part of the chance
            protocol = type(protocol).for_epsilon(EPSILON, domain=case.domain)
        aggregate = protocol.aggregator().add(protocol.randomize(values))
        if isinstance(aggregate, RapporAggregator):
            found = aggregate.decode([str(value) for value in range(case.domain)])
            errors.append(np.mean((found.shares - truth) ** 2))
            variances.append(np.mean(found.standard_errors**2))
        else:
            errors.append(np.mean((aggregate.estimate().values - truth) ** 2))
            variances.append(np.mean(stated))
    return f"MSE {np.mean(errors) / np.mean(variances):.3f} of theory"


def rows_of(case: Case, repeats: int) -> list[Row]:
    rng = np.random.default_rng(0)
    shares = zipf_shares(case.domain)
    numbers = isinstance(case.protocol, LocalMean)
    values = rng.beta(2, 5, case.people) if numbers else rng.choice(case.domain, size=case.people, p=shares)
    works: list[tuple[Work, int]] = [(counted(case.protocol, values), case.people)]
    failed: dict[str, str] = {}
    for name, (peer, people) in case.peers.items():
        few = [int(value) for value in values[:people]]
        try:
            work = peer(few, case.domain)
            work()
        except ImportError:
            failed[name] = ""
        except Exception as problem:  # noqa: BLE001 - whatever a peer does, the others are still measured
            failed[name] = f"fails: {type(problem).__name__}"
        else:
            works.append((work, people))
    times = iter(interleaved(works, repeats))
    ours = next(times)
    speed = f"{1e9 / ours:.3g} users/s"
    what = f"{case.name}, domain {case.domain}, per person"
    note = ", ".join(part for part in (speed, error_over_theory(case), case.goal) if part)
    rows = []
    for name in case.peers:
        if name not in failed:
            taken = next(times)
            rows.append(
                Row(name=what, ours_ns=ours, other=name, other_ns=taken, note=f"{1e9 / taken:.3g} against {note}")
            )
        else:
            told = f"{name} {failed[name]}" if failed[name] else ""
            rows.append(
                Row(name=what, ours_ns=ours, other="-" if told else name, note=", ".join(p for p in (note, told) if p))
            )
    return rows or [Row(name=what, ours_ns=ours, note=note)]


def oracle_rows(repeats: int) -> list[Row]:
    cases = [
        Case(
            name="k-ary response",
            domain=100,
            protocol=Kary.for_epsilon(100, EPSILON),
            people=1_000_000,
            goal="to reach 10 ×",
            peers=peers_of("kary", 20_000, 50_000),
        ),
        Case(
            name="k-ary response",
            domain=10_000,
            protocol=Kary.for_epsilon(10_000, EPSILON),
            people=1_000_000,
            goal="to reach 20 ×",
            peers=peers_of("kary", 20_000, 20_000),
        ),
        Case(
            name="unary, optimised",
            domain=100,
            protocol=Unary.for_epsilon(100, EPSILON),
            people=200_000,
            goal="to reach 10 ×",
            peers=peers_of("oue", 5_000, 10_000),
        ),
        Case(
            name="local hashing",
            domain=100,
            protocol=LocalHashing.for_epsilon(100, EPSILON),
            people=200_000,
            goal="to reach 200 ×",
            peers=peers_of("olh", 500, 500),
        ),
        Case(
            name="local hashing",
            domain=10_000,
            protocol=LocalHashing.for_epsilon(10_000, EPSILON),
            people=5_000,
            goal="to reach 200 ×",
            peers=peers_of("olh", 20, 20),
        ),
        Case(
            name="subset selection",
            domain=100,
            protocol=SubsetSelection.for_epsilon(100, EPSILON),
            people=100_000,
            goal="",
            peers=peers_of("subset", None, 5_000),
        ),
        Case(
            name="Hadamard response",
            domain=10_000,
            protocol=HadamardResponse.for_epsilon(10_000, EPSILON),
            people=1_000_000,
            goal="",
        ),
        Case(
            name="projective geometry",
            domain=10_000,
            protocol=ProjectiveResponse.for_epsilon(10_000, EPSILON),
            people=500_000,
            goal="",
        ),
    ]
    return [row for case in cases for row in rows_of(case, repeats)]


def text_rows(repeats: int) -> list[Row]:
    cases: Sequence[Case] = [
        Case(
            name="RAPPOR, 128 bits",
            domain=100,
            protocol=Rappor(bits=128, hashes=2, cohorts=8, f="1/2"),
            people=200_000,
            goal="to reach 50 ×",
            peers=peers_of("rappor", 1_000, None),
        ),
        Case(
            name="count-mean sketch",
            domain=10_000,
            protocol=CountMeanSketch.for_epsilon(EPSILON, domain=10_000),
            people=100_000,
            goal="to reach 0.3 M",
            peers=peers_of("cms", 500, None),
        ),
        Case(
            name="Hadamard sketch",
            domain=10_000,
            protocol=HadamardSketch.for_epsilon(EPSILON, domain=10_000),
            people=1_000_000,
            goal="to reach 2 M",
            peers=peers_of("hcms", 500, None),
        ),
    ]
    return [row for case in cases for row in rows_of(case, repeats)]


def number_rows(repeats: int) -> list[Row]:
    cases = [
        Case(
            name="mean, one bit",
            domain=2,
            protocol=OneBitMean.for_epsilon((0, 1), EPSILON),
            people=1_000_000,
            goal="",
        ),
        Case(
            name="mean, piecewise",
            domain=2,
            protocol=PiecewiseMean.for_epsilon((0, 1), EPSILON),
            people=1_000_000,
            goal="",
        ),
    ]
    return [row for case in cases for row in rows_of(case, repeats)]


if __name__ == "__main__":
    run(__doc__ or "", [oracle_rows, text_rows, number_rows], RESULTS, repeats=5)
