"""Apple's sketches: how often texts of an open domain occur, counted in a small table. Proof in ``sketches.md``.

Count-mean sketch and Hadamard count-mean sketch (Differential Privacy Team, Apple: Learning with Privacy at Scale,
2017). A value is hashed to one of m buckets by one of k functions, and the bucket is reported with noise. A report
*supports* all values of the buckets that it speaks for. ``sketch_reading`` turns the counted reports into shares.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Domain, bytes_for
from dither.local.clients.sketch import (
    LARGEST_BUCKETS,
    LARGEST_HASHES,
    SEED_BYTES,
    check_sizes,
    check_texts,
    seed_bytes,
)
from dither.local.consistent import Consistency
from dither.local.frequencies import FEW, Ints, Label, Shares, checked_domain, number_rows, row_numbers
from dither.local.kary import BLOCK_PEOPLE
from dither.local.losses import response_loss
from dither.local.protocol import Aggregator, Counts, Floats, Payloads, Protocol, total
from dither.local.sketch_hashing import Functions, coded
from dither.local.wire import Json
from dither.mechanisms.response_estimates import Target, share_variance, worst_share
from dither.numeric import Number, positive_int, probability
from dither.privacy import PrivacyLoss


class Sketch(Protocol):
    """Estimates the shares of any values that are asked for, from a table of ``hashes`` × ``buckets`` counters.

    A subclass is a frozen dataclass with these fields. ``domain`` is a public list of values (their number, or labels),
    or None for an open one. ``seed`` chooses the hash functions; by default it is drawn, and published with the
    description.

    Guarantee: the curve of one report is at most weight·(odds − e^ε)₊ for every two values, so ε = ln(odds) under
        REPLACE, whatever the hash functions; no less for two values that no function takes to one bucket.
    Assumes: every report is of another person; r reports of one cost r times as much.
    Accuracy: unbiased over the hash functions; ``variance`` has the noise of the reports and that of collisions, which
        all reports share: it doesn't shrink with their number, only with the size of the table.
    """

    domain: int | tuple[Label, ...] | None
    hashes: int
    buckets: int
    seed: str
    _known: Domain | None

    # ------------------------------------------------------------------ what a subclass says

    @property
    @abstractmethod
    def hit(self) -> Fraction:
        """The probability that a report supports the value of the person who sends it."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        """The probability that a report supports a given value in another bucket."""

    @property
    @abstractmethod
    def odds(self) -> Fraction:
        """How many times likelier a report may be for one value than for another: e^ε."""

    @property
    @abstractmethod
    def weight(self) -> Fraction:
        """The probability that a report speaks for one given other bucket and against that of the truth."""

    @abstractmethod
    def randomize_buckets(self, truths: npt.NDArray[Any], source: Source) -> Payloads:
        """What payloads say after the function, for people whose values it takes to these buckets."""

    @abstractmethod
    def aggregator(self) -> SketchAggregator:
        """An empty aggregate for this collection."""

    # ------------------------------------------------------------------ what follows for both

    def _set(self, domain: Any, hashes: int, buckets: int, seed: str | None) -> None:
        known = None if domain is None else checked_domain(domain)
        check_texts(known)
        put = object.__setattr__
        put(self, "_known", known)
        put(self, "domain", None if known is None else known.size if known.labels is None else known.labels)
        for name, value, most in (("hashes", hashes, LARGEST_HASHES), ("buckets", buckets, LARGEST_BUCKETS)):
            least = 1 if name == "hashes" else 2
            if positive_int(value, name, least=least) > most:
                raise InvalidParameter(f"{name} must be a whole number from {least} to {most}; got {value!r}")
            put(self, name, int(value))
        check_sizes(self.hashes, self.buckets)
        put(self, "seed", SYSTEM.bits(8 * SEED_BYTES).to_bytes(SEED_BYTES, "little").hex() if seed is None else seed)
        seed_bytes(self.seed)

    @property
    def functions(self) -> Functions:
        """The hash functions."""
        return Functions(seed_bytes(self.seed), self.hashes, self.buckets)

    @property
    def miss(self) -> Fraction:
        """The probability, over the hash functions too, that a report supports a given other value."""
        return self.other + (self.hit - self.other) / self.buckets

    def loss(self) -> PrivacyLoss:
        """The exact pair of two values that no function takes to one bucket, for the adjacency REPLACE."""
        return response_loss(self.odds, self.weight)

    def variance(self, n: int, share: Number | None = None, *, concentration: Number | None = None) -> float:
        """The variance of one value's estimate from ``n`` reports, over coins, people and hash functions.

        ``share`` is by default the worst. ``concentration`` is the sum of the squared shares of all other values: the
        more of them are alike, the less do collisions matter. By default one of them has all the rest, which is the
        worst.
        """
        people = positive_int(n, "n")
        theta = worst_share(self.hit, self.miss, Target.POPULATION) if share is None else probability(share, "share")
        most = (1 - theta) ** 2
        squares = most if concentration is None else probability(concentration, "concentration", most=most)
        coins = share_variance(people, theta, self.hit, self.miss, Target.POPULATION)
        return float(coins + (1 - Fraction(1, people)) * squares / (self.hashes * (self.buckets - 1)))

    def inputs(self) -> list[Label]:
        """All values of the domain, or a few of an open one."""
        if self._known is None:
            return list(range(FEW))
        return list(range(self._known.size) if self._known.labels is None else self._known.labels)

    def values(self) -> Sequence[Label]:
        """All values of the domain. Raises InvalidParameter if it is open."""
        if self._known is None:
            raise InvalidParameter("this collection has no list of values: say which to estimate, with values=[…]")
        return range(self._known.size) if self._known.labels is None else self._known.labels

    def reduced(self) -> Self:
        """The same coins with so small a table that the law of the client can be listed in full."""
        return self.resized(domain=FEW, hashes=2, buckets=4)

    def resized(self, *, domain: Any, hashes: int, buckets: int) -> Self:
        """The same coins for another domain and table."""
        return replace(self, domain=domain, hashes=hashes, buckets=buckets)  # type: ignore[type-var]

    def describe(self) -> Json:
        """The description."""
        return {
            "protocol": self.name,
            "domain": None if self._known is None else self._known.to_json(),
            "hashes": self.hashes,
            "buckets": self.buckets,
            "seed": self.seed,
        }

    @classmethod
    def _made(cls, description: Mapping[str, Any], **coins: Fraction) -> Self:
        """What a description says, refused if it also says something else."""
        sizes = {name: description.get(name) for name in ("domain", "hashes", "buckets", "seed")}
        if sizes["seed"] is None:
            raise InvalidParameter("a description of a sketch has a seed, which chooses its hash functions")
        found = cls(**sizes, **coins)
        if found.describe() != dict(description):
            raise InvalidParameter(
                f"a description of {cls.name!r} has the fields {', '.join(found.describe())} and no others, with "
                "fractions in lowest terms"
            )
        return found

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each: texts or whole numbers, of the domain if there is one."""
        different, codes = coded(values, self._known)
        return self.randomize_coded(different, codes, source)

    def randomize_coded(self, different: Sequence[Label], codes: Ints, source: Source) -> Payloads:
        """The same for values given as places in a list of different ones."""
        drawn = below_many(self.hashes, codes.size, source)
        truths = self.functions.buckets_of_people(different, codes, drawn, keep=self._known is not None)
        rows = np.empty((codes.size, self.width), dtype=np.uint8)
        head = bytes_for(self.hashes)
        for start in range(0, codes.size, BLOCK_PEOPLE):
            some = slice(start, start + BLOCK_PEOPLE)
            rows[some, :head] = number_rows(drawn[some], head)
            rows[some, head:] = self.randomize_buckets(truths[some], source)
        return rows

    def drawn_functions(self, payloads: Payloads) -> npt.NDArray[Any]:
        """The functions that payloads name."""
        return row_numbers(payloads[:, : bytes_for(self.hashes)])


class SketchAggregator(Aggregator[Shares]):
    """Counts for every function its reports, and something for each of its buckets or rows."""

    protocol: Sketch
    unsigned: ClassVar[bool]

    def __init__(self, protocol: Sketch) -> None:
        super().__init__(protocol)
        self.sums: Counts = np.zeros((protocol.hashes, protocol.buckets), dtype=np.int64)
        self.function_reports: Counts = np.zeros(protocol.hashes, dtype=np.int64)

    @abstractmethod
    def supports(self) -> Counts:
        """For every function and bucket, how many reports support it; less those that don't, unless ``unsigned``."""

    @abstractmethod
    def pair_sums(self) -> tuple[Floats, Floats]:
        """For every function, an unbiased sum over all its pairs of reports of whether they are of one bucket.

        And the number of its pairs.
        """

    def state(self) -> dict[str, Counts]:
        """The counters."""
        return {"sums": self.sums, "function_reports": self.function_reports}

    def put(self, state: Mapping[str, Counts]) -> None:
        """Take a state in place of one's own."""
        sums, reports = (np.array(state[name], dtype=np.int64) for name in ("sums", "function_reports"))
        # not by their absolute values: that of the least word is itself
        if (reports < 0).any() or (sums > reports[:, None]).any() or (sums < -reports[:, None]).any():
            raise InvalidData("a saved aggregate is damaged: no counter exceeds the reports of its function")
        self.sums, self.function_reports = sums, reports

    def sound(self) -> bool:
        """Whether every report is of one function; sums of signs may be negative."""
        signs = bool((self.sums >= 0).all()) or not self.unsigned
        return signs and total(self.function_reports) == self.reports

    def estimate(
        self,
        confidence: Number = 0.95,
        *,
        values: Sequence[Label] | None = None,
        simultaneous: bool = True,
        consistent: Consistency | None = None,
    ) -> Shares:
        """The shares of ``values``, by default of all of the domain; see ``sketch_reading.read_shares``.

        Unbiased, so a share may be negative, unless ``consistent`` names a rule. All intervals hold together
        (Bonferroni) if ``simultaneous``, else each by itself.
        """
        from dither.local.sketch_reading import read_shares

        found = read_shares(self, values, confidence=confidence, simultaneous=simultaneous)
        return found if consistent is None else found.made_consistent(consistent)
