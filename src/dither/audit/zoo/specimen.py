"""What every specimen is: a mechanism, what it claims, neighbours to try it on, and whether it lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dither.audit.drawing.draws import Batched
from dither.audit.lower_bound import Budget
from dither.audit.result import Assumption, LowerBound
from dither.audit.search import search
from dither.errors import InvalidParameter
from dither.mechanisms.base import Floats
from dither.privacy import PrivacyLoss, Sensitivity
from dither.progress import Watch, unwatched

Pair: TypeAlias = tuple[Any, Any]

# Outputs that aren't about floating point are rounded to this step, so that their one mistake is the only one.
STEP = 2.0**-20
LONGEST_ARRAY = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Specimen:
    """A mechanism with a claim about itself: broken ones are to be caught, right ones to be left alone.

    ``family`` is shared by a broken one and its right twins. ``typically`` says in words by what outputs a broken one
    gives itself away; ``remark`` what is worth knowing about a right one. ``delta`` is where the bound on ε is stated;
    the verdict is about the whole claim. ``seconds`` is the time in which one core catches a broken one, or for which
    a right one is audited.
    """

    name: str
    family: str
    source: str
    mechanism: Any
    pairs: tuple[Pair, ...]
    claim: PrivacyLoss
    seconds: float = 5.0
    mistake: str = ""
    typically: str = ""
    remark: str = ""
    broken: bool = False
    delta: float = 0.0
    assuming: Assumption | None = None

    def __post_init__(self) -> None:
        if not self.pairs:
            raise InvalidParameter(f"{self.name}: a specimen needs at least one pair of neighbouring inputs")
        if self.broken != bool(self.mistake) or self.broken != bool(self.typically):
            raise InvalidParameter(f"{self.name}: a broken specimen states its mistake and its event, a right one none")
        if not self.seconds > 0:
            raise InvalidParameter(f"{self.name}: seconds must be greater than 0; got {self.seconds!r}")

    @classmethod
    def right(
        cls,
        name: str,
        mechanism: Any,
        moved: Sensitivity | None,
        *pairs: Pair,
        draw: Batched | None = None,
        family: str = "",
        source: str = "",
        remark: str = "",
        delta: float = 0.0,
        seconds: float = 5.0,
    ) -> Specimen:
        """A mechanism of dither that claims its own loss; ``draw`` is how many outputs are drawn at once."""
        return cls(
            name=name,
            family=family or name,
            source=source or f"dither.{type(mechanism).__name__}",
            mechanism=draw or mechanism,
            pairs=pairs,
            claim=mechanism.loss() if moved is None else mechanism.loss(moved),
            seconds=seconds,
            remark=remark,
            delta=delta,
        )

    def spoilt(
        self,
        *,
        name: str,
        mistake: str,
        source: str,
        typically: str,
        seconds: float = 10.0,
        mechanism: Any = None,
        pairs: tuple[Pair, ...] = (),
        claim: PrivacyLoss | None = None,
    ) -> Specimen:
        """The broken twin of a right specimen: what isn't given stays as it is, the claim above all."""
        return replace(
            self,
            name=name,
            mistake=mistake,
            source=source,
            typically=typically,
            seconds=seconds,
            mechanism=self.mechanism if mechanism is None else mechanism,
            pairs=pairs or self.pairs,
            claim=self.claim if claim is None else claim,
            remark="",
            broken=True,
        )


def audit_specimen(
    specimen: Specimen,
    *,
    budget: Budget | None = None,
    confidence: float = 0.99,
    workers: int | None = None,
    watch: Watch = unwatched,
) -> LowerBound:
    """Audit one specimen against its own claim, for its stated time unless ``budget`` says otherwise."""
    allowed = specimen.seconds if budget is None else budget
    return search(
        specimen.mechanism,
        specimen.pairs,
        claim=specimen.claim,
        delta=specimen.delta,
        confidence=confidence,
        budget=allowed,
        assuming=specimen.assuming,
        workers=workers,
        watch=watch,
    )


def careless() -> np.random.Generator:
    """The generator of careless code; the system seeds it for every batch, so that forked copies differ."""
    return np.random.Generator(np.random.SFC64(int.from_bytes(os.urandom(16), "little")))


def rounded(values: Floats) -> Floats:
    """Outputs on a grid that is coarse for floats and fine for the noise: their lowest bits tell nothing."""
    return np.asarray(np.round(values / STEP) * STEP)


def batched(draw: Callable[[Any, int], Any]) -> Batched:
    """A mechanism that draws many outputs at once, from randomness that forked copies don't share."""
    return Batched(draw=draw, copies=True)


def laplace_of(exact: Callable[[Any], float], scale: float) -> Batched:
    """An exact number plus numpy's Laplace noise, rounded to a grid."""
    return batched(lambda x, n: rounded(exact(x) + careless().laplace(0.0, scale, n)))


def released(exact: Callable[[Any], Any], release: Callable[[Any], Any]) -> Batched:
    """What a dither mechanism releases in bulk: n copies of an exact answer, each with noise of its own.

    In short arrays: noise on an array is wider by a share for every coordinate, as neighbours may differ in all.
    """

    def draw(x: Any, n: int) -> Any:
        answer = np.asarray(exact(x))
        starts = range(0, n, LONGEST_ARRAY)
        return np.concatenate(
            [release(np.tile(answer, (min(LONGEST_ARRAY, n - start), *[1] * answer.ndim))) for start in starts]
        )

    return batched(draw)


def one_by_one(release: Callable[[Any], Any]) -> Batched:
    """What a dither mechanism releases, called once for every output."""
    return batched(lambda x, n: np.array([release(x) for _ in range(n)]))
