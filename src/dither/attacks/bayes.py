"""A Bayesian adversary: who knows everything but one person's bit, and computes what a release says about it.

With ε-differential privacy no answer changes the odds of a suspicion by more than a factor e^ε: Dwork, McSherry, Nissim
& Smith 2006 (TCC) for an attacker who knows all other rows; Kasiviswanathan & Smith 2014 (Journal of Privacy and
Confidentiality) for any other, whose beliefs are compared with those after a release without the person. So whoever
guesses a fair bit is right in a share e^ε/(1+e^ε) of all cases at most, with δ > 0 in δ + (1−δ)·e^ε/(1+e^ε), because
every private release of a bit can be made from randomised response (Kairouz, Oh & Viswanath 2015, ICML). These are
theorems, not measurements: the published figure is the bound, and what is measured here has to stay below it. Discrete
Laplace noise on a count reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.special import expit

from dither.attacks.base import Attack, Bits, Outcome, Published, ReleaseKind, Score, chance_error
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace, Laplace, RandomizedResponse
from dither.mechanisms.base import Floats
from dither.numeric import Number, as_fraction, positive, positive_int, probability
from dither.pictures import EXACT, FAINT, LINE, MORE, PRIVATE
from dither.privacy import Guarantee, Sensitivity, calibrate
from dither.progress import Watch, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Known: TypeAlias = DiscreteLaplace | Laplace | DiscreteGaussian | RandomizedResponse

SWEEP = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
BANDS = (3.0, 1.0, 0.3)
PRIORS = tuple(tenth / 10 for tenth in range(1, 10))
# Large enough to be seen: nobody should release with it.
VISIBLE_DELTA = 0.01
DL, CL, DG, RR = "discrete Laplace", "Laplace", "discrete Gaussian", "randomised response"


def log_likelihood(mechanism: Known, released: Any, exact: Any) -> Floats:
    """How well an exact answer explains a release: ln Pr[released | exact], up to what is the same for every answer.

    Example:
        >>> noise = DiscreteLaplace(scale=2)
        >>> float(log_likelihood(noise, 7, 7) - log_likelihood(noise, 7, 8))
        0.5
    """
    if isinstance(mechanism, RandomizedResponse):
        same = np.asarray(released, dtype=bool) == np.asarray(exact, dtype=bool)
        return np.where(same, math.log(mechanism.truth), math.log(mechanism.lie))
    distance = np.abs(np.asarray(released, dtype=np.float64) - np.asarray(exact, dtype=np.float64))
    if isinstance(mechanism, DiscreteLaplace | Laplace):
        return np.asarray(-distance / float(mechanism.scale))
    if isinstance(mechanism, DiscreteGaussian):
        return np.asarray(-((distance / float(mechanism.scale)) ** 2) / 2)
    raise InvalidParameter(
        "the law of this mechanism isn't known here; use DiscreteLaplace, Laplace, DiscreteGaussian or "
        "RandomizedResponse"
    )


def posterior(mechanism: Known, released: Any, *, prior: Number, truths: tuple[Any, Any] = (0, 1)) -> Floats:
    """What to believe after a release: the probability of the second of two truths, by Bayes' rule.

    ``truths`` are the exact answers under "no" and "yes"; arrays go through element by element.

    Example:
        >>> f"{float(posterior(DiscreteLaplace(scale=1), 43, prior=0.1, truths=(42, 43))):.4f}"
        '0.2320'
    """
    belief = float(probability(prior, "prior"))
    if belief in (0.0, 1.0):
        return np.full(np.shape(released), belief)
    no, yes = truths
    weight = log_likelihood(mechanism, released, yes) - log_likelihood(mechanism, released, no)
    return np.asarray(expit(math.log(belief) - math.log1p(-belief) + weight))


def best_accuracy(prior: Number, guarantee: Guarantee) -> float:
    """How often the best attacker can be right about which of two neighbours was used, for any mechanism.

    Guarantee: every release is made from randomised response, with a share δ given away (Kairouz, Oh & Viswanath
        2015); so no attacker beats δ + (1−δ)·max(prior, 1 − prior, e^ε/(1+e^ε)).

    Example:
        >>> f"{best_accuracy(0.5, Guarantee(epsilon=1)):.4f} {best_accuracy(0.1, Guarantee(epsilon=1)):.4f}"
        '0.7311 0.9000'
    """
    belief, delta = float(probability(prior, "prior")), float(guarantee.delta)
    return delta + (1 - delta) * max(belief, 1 - belief, float(expit(float(guarantee.epsilon))))


def best_accuracy_of_value(prior: Number, epsilon: Number) -> float:
    """The same for what a person said who is known to have taken part, under ADD_REMOVE: the weaker promise.

    Two values are two steps apart: both are neighbours of the data without the person, not of each other.

    Guarantee: for every event A and its probability a without the person, "yes" gives A at most
        min(e^ε·a, 1 − e^−ε·(1−a)) and "no" at least max(e^−ε·a, 1 − e^ε·(1−a)). The gain over guessing is concave and
        piecewise linear in a, so the best is at a bend; for a fair bit it is 1 − e^−ε/2.

    Example:
        >>> f"{best_accuracy_of_value(0.5, 1):.4f}"
        '0.8161'
    """
    yes, e = float(probability(prior, "prior")), math.exp(min(float(positive(epsilon, "epsilon")), 700.0))
    gains = (
        yes * min(e * a, 1 - (1 - a) / e) - (1 - yes) * max(a / e, 1 - e * (1 - a))
        for a in (0.0, 1 / (1 + e), e / (1 + e), 1.0)
    )
    return min(1.0, 1 - yes + max(gains))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Of the releases after which the attacker was ``believed`` sure, the ``share`` in which it was so."""

    believed: float
    share: float
    releases: int


def calibration(beliefs: Any, truths: Any, *, bins: int = 10) -> tuple[Calibration, ...]:
    """Whether beliefs mean what they say; bins of equal width over [0, 1], empty ones left out.

    An attacker with the right law is calibrated, whatever the noise. Where less noise was added than was stated, things
    that are believed with 73% come true more often: the attacker notices, and so does a test.
    """
    believed, came_true = np.asarray(beliefs, dtype=np.float64), np.asarray(truths, dtype=bool)
    if believed.shape != came_true.shape or believed.ndim != 1:
        raise InvalidParameter("give as many beliefs as truths, one for each release")
    place = np.minimum((believed * positive_int(bins, "bins")).astype(np.int64), bins - 1)
    found = []
    for index in np.unique(place):
        inside = place == index
        found.append(
            Calibration(
                believed=float(believed[inside].mean()),
                share=float(came_true[inside].mean()),
                releases=int(inside.sum()),
            )
        )
    return tuple(found)


def posterior_table(
    epsilons: Sequence[Number] = (0.1, 0.5, 1, 2, 5),
    priors: Sequence[Number] = (0.001, 0.01, 0.1, 0.5, 0.9),
    *,
    delta: Number = 0,
) -> str:
    """What suspicions can become after any answer, as a table: a row for each ε, a column for each prior.

    Example:
        >>> print(posterior_table((0.1, 1), (0.01, 0.5)))
          ε        prior 1%       prior 50%
        0.1   0.906 – 1.1 %   47.5 – 52.5 %
          1   0.37 – 2.67 %   26.9 – 73.1 %
    """
    rows = []
    for epsilon in epsilons:
        guarantee = Guarantee(epsilon, delta)
        ends = (guarantee.posterior(prior) for prior in priors)
        cells = (f"{100 * low:.3g} – {100 * high:.3g} %" for low, high in ends)
        rows.append([f"{float(as_fraction(epsilon)):g}", *cells])
    heads = ["ε", *(f"prior {100 * float(as_fraction(prior)):g}%" for prior in priors)]
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return "\n".join("   ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (heads, *rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the attacker believed after many releases of one mechanism, and the truth."""

    name: str
    guarantee: Guarantee
    beliefs: Floats
    secrets: Bits

    @property
    def accuracy(self) -> float:
        return float(np.mean((self.beliefs > 0.5) == self.secrets))

    def outside(self, prior: Number) -> float:
        """The share of releases after which the belief left the bounds of the guarantee."""
        low, high = self.guarantee.posterior(prior)
        # the bounds are floats rounded outward by a bit or two; the beliefs are floats too
        slack = 1e-12
        return float(np.mean((self.beliefs < low - slack) | (self.beliefs > high + slack)))


def _attacked(name: str, epsilon: Number, prior: Number, people: int, maker: np.random.Generator) -> _Seen:
    """One release for each of many people, of each of whom the attacker knows all but one bit."""
    secrets = maker.random(people) < float(as_fraction(prior))
    others = maker.integers(0, 1000, people)
    guarantee = Guarantee(epsilon, VISIBLE_DELTA if name == DG else 0)
    scale = 1 / positive(epsilon, "epsilon")
    if name == RR:
        answer = RandomizedResponse.for_epsilon(epsilon)
        beliefs = posterior(answer, answer.release(secrets), prior=prior, truths=(False, True))
    elif name == CL:
        real = Laplace(scale)
        beliefs = posterior(real, real.release((others + secrets) * 1.0), prior=prior, truths=(others, others + 1))
    else:
        whole = DiscreteLaplace(scale) if name == DL else calibrate(DiscreteGaussian, guarantee, Sensitivity.l2(1))
        beliefs = posterior(whole, whole.release(others + secrets), prior=prior, truths=(others, others + 1))
    return _Seen(name=name, guarantee=guarantee, beliefs=beliefs, secrets=secrets)


def _read_off(people: int, prior: Number, maker: np.random.Generator) -> float:
    """The success of whoever subtracts the others from an exact count."""
    secrets = maker.random(people) < float(as_fraction(prior))
    others = maker.integers(0, 1000, people)
    count = others + secrets
    return float(np.mean((count - others == 1) == secrets))


def bayes(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    people: int = 20_000,
    epsilon: Number = 1,
    prior: Number = 0.5,
) -> Outcome:
    """Attack counts and survey answers with Bayes' rule, knowing everything but one person's bit.

    Every one of ``people`` is attacked on a release of their own that costs ``epsilon``.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        people: How many are attacked, each on a release of their own.
        epsilon: What each release costs.
        prior: The attacker's suspicion before, strictly between 0 and 1.
    """
    positive_int(people, "people", least=100)
    belief = probability(prior, "prior")
    if not 0 < belief < 1:
        raise InvalidParameter(f"prior must lie strictly between 0 and 1, or nothing is left to learn; got {prior!r}")
    maker = np.random.default_rng(seed)
    seen = []
    for step, name in enumerate((DL, CL, RR, DG)):
        watch(step / 8, f"attacking releases with {name} noise" if name != RR else "attacking survey answers")
        seen.append(_attacked(name, epsilon, prior, people, maker))
    sweep: dict[str, list[float]] = {}
    for step, name in enumerate((DL, CL, RR)):
        watch(0.5 + step / 8, f"{name}, for other ε")
        sweep[name] = [_attacked(name, one, 0.5, people, maker).accuracy for one in SWEEP]
    watch(0.9, "other suspicions")
    extremes = {}
    for suspicion in PRIORS:
        beliefs = _attacked(DL, 1, suspicion, 400, maker).beliefs
        extremes[suspicion] = (float(beliefs.min()), float(beliefs.max()))
    watch(1.0, "done")
    first = seen[0]
    guessing = float(max(belief, 1 - belief))
    cost = f"ε = {float(as_fraction(epsilon)):g}"
    what = {
        DL: f"bit guessed from a noisy count, {cost}",
        CL: f"bit guessed from a noisy number, {cost}",
        RR: f"bit guessed from a randomised answer, {cost}",
        DG: f"bit guessed from a count with Gaussian noise, {cost}, δ = {VISIBLE_DELTA:g}",
    }
    scores = [
        Score(
            release=ReleaseKind.UNPROTECTED,
            what="bit read off an exact count",
            value=_read_off(people, prior, maker),
            guessing=guessing,
            detail="whoever knows the others subtracts them",
        )
    ]
    for one in seen:
        bound = best_accuracy(prior, one.guarantee)
        scores.append(
            Score(
                release=ReleaseKind.PRIVATE,
                what=what[one.name],
                value=one.accuracy,
                guessing=guessing,
                published=_theorem(bound) if one is first else None,
                detail=(
                    f"±{100 * chance_error(one.accuracy, people):.1f}% by chance; on average nobody exceeds "
                    f"{100 * bound:.1f}%; {_promise_kept(one, prior)}"
                ),
            )
        )
    return Outcome(
        attack="bayes",
        scores=tuple(scores),
        summary=_summary(seen, prior, guessing),
        draw=lambda figure: _draw(figure, sweep, extremes),
        size=(9.0, 4.2),
    )


def _theorem(bound: float) -> Published:
    return Published(
        f"at most max(prior, 1 − prior, e^ε/(1+e^ε)) = {100 * bound:.1f}%",
        "Kairouz, Oh & Viswanath 2015; odds change by at most e^ε, Dwork, McSherry, Nissim & Smith 2006",
    )


def _promise_kept(one: _Seen, prior: Number) -> str:
    low, high = one.guarantee.posterior(prior)
    ends = f"[{100 * low:.1f}%, {100 * high:.1f}%]"
    if one.guarantee.delta:
        allowed = 2 * float(one.guarantee.delta)
        return f"beliefs left {ends} after {100 * one.outside(prior):.2f}% of the releases, allowed {100 * allowed:g}%"
    return f"beliefs left {ends} after {one.outside(prior):.0%} of the releases"


def _summary(seen: Sequence[_Seen], prior: Number, guessing: float) -> str:
    first = seen[0]
    surest = max(calibration(first.beliefs, first.secrets), key=lambda one: one.believed)
    low, high = first.guarantee.posterior(prior)
    return (
        f"A suspicion of {100 * float(as_fraction(prior)):g}% stays between {100 * low:.1f}% and {100 * high:.1f}% "
        f"after each of {first.secrets.size:,} noisy counts. Where the attacker was surest "
        f"({100 * surest.believed:.1f}%), it was so in {100 * surest.share:.1f}%: beliefs mean what they say, so the "
        f"noise is as large as stated. All guesses together: {100 * first.accuracy:.1f}% right "
        f"(±{100 * chance_error(first.accuracy, first.secrets.size):.1f}% by chance), "
        f"{100 * guessing:.1f}% without the release."
    )


def _draw(figure: Figure, sweep: dict[str, list[float]], extremes: dict[float, tuple[float, float]]) -> None:
    left, right = figure.subplots(1, 2)
    priors = np.linspace(0.0, 1.0, 101)
    for shade, epsilon in zip((0.18, 0.3, 0.5), BANDS, strict=True):
        ends = np.array([Guarantee(epsilon).posterior(float(p)) for p in priors])
        left.fill_between(
            100 * priors, 100 * ends[:, 0], 100 * ends[:, 1], color=PRIVATE, alpha=shade, lw=0, label=f"ε = {epsilon:g}"
        )
    for place, seen in enumerate(extremes.items()):
        before, after = seen
        at, ends_seen = (100 * before, 100 * before), (100 * after[0], 100 * after[1])
        left.plot(at, ends_seen, ".", color=LINE, ms=5, label=None if place else "seen, ε = 1")
    left.plot((0, 100), (0, 100), color=LINE, lw=0.8)
    left.set(xlabel="suspicion before (%)", ylabel="suspicion after (%)", title="What a suspicion can become")
    left.set(xlim=(0, 100), ylim=(0, 100))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, fontsize=8, columnspacing=1.2)
    fine = np.geomspace(SWEEP[0] * 0.8, SWEEP[-1] * 1.25, 80)
    right.axhline(100, color=EXACT, label="exact count")
    right.plot(fine, 100 * expit(fine), color=LINE, label=r"bound $e^\varepsilon/(1+e^\varepsilon)$")
    for (name, values), marker, colour in zip(sweep.items(), ("o", "s", "x"), (MORE[0], MORE[2], MORE[3]), strict=True):
        right.plot(SWEEP, [100 * v for v in values], marker, color=colour, ms=6, mfc="none", label=name)
    right.axhline(50, color=FAINT, ls="--", label="guessing")
    right.set(xscale="log", xlabel="ε of the release", ylabel="bits guessed right (%)", ylim=(45, 104))
    right.set(title="The best attack on a fair bit")
    right.set_xticks(SWEEP, [f"{e:g}" for e in SWEEP])
    right.minorticks_off()
    right.legend(loc="center left", bbox_to_anchor=(0.0, 0.68), fontsize=8)


ATTACK = Attack(
    name="bayes",
    title="A Bayesian adversary who knows everything but one bit",
    question="What can a suspicion become after a private answer, and how often is the best guess right?",
    run=bayes,
)
