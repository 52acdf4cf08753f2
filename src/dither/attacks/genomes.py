"""Membership in a genomic study, from allele frequencies alone.

Homer et al. (2008, PLoS Genetics) compare a person's genome with the allele frequencies of a study and of the
population and tell whether the person took part, also where one "contributes less than 0.1% of the total genomic DNA";
that year the NIH took aggregate results of genetic studies out of public databases. Sankararaman et al. (2009, Nature
Genetics) use the likelihood ratio, which no test beats, and study how many SNPs may be published.

What counts is the number m of independent SNPs for each of the n participants. A participant's genotype g at a SNP of
frequency p moves the study's count of alleles by g − 2p, against a spread of √(2np(1 − p)) that chance gives it. The
squares of these shares have the mean 1/n, so m of them tell members from others like two normal laws √(m/n) apart: at a
share α of false alarms the power is Φ(√(m/n) − z_α). Simulation agrees (tests, and the right half of the picture).

Ours differs from theirs: genotypes are synthetic, SNPs independent and in Hardy–Weinberg proportions, and the attacker
knows the population's frequencies exactly, which is more than a reference sample tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from dither.attacks.base import Attack, Outcome, Published, ReleaseKind, Score
from dither.attacks.detection import RATES, detected, detection_error, log_normal, most_detected
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms import DiscreteGaussian
from dither.mechanisms.base import Floats, Ints
from dither.numeric import Number, positive_int
from dither.pictures import EXACT, FAINT, LINE, PRIVATE
from dither.privacy import Guarantee, Sensitivity, calibrate
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Genotypes: TypeAlias = npt.NDArray[np.int8]
# What publishes counts: a mechanism's release, or the counts as they are.
Counts: TypeAlias = Callable[[Ints], Ints]

BLOCK = 2000
FALSE_ALARMS = 0.01
# For the picture of power against the number of SNPs: more false alarms, less chance in the points.
MORE_FALSE_ALARMS = 0.05
HOMER = Published("a person who is less than 0.1% of the mixture is resolved", "Homer et al. 2008 (abstract)")


# ---------------------------------------------------------------------- the attacker


def homer_distance(genomes: Genotypes, study: Floats, population: Floats) -> Floats:
    """Homer's test for each genome: how much closer it is to the study's frequencies than to the population's.

    D = |y − population| − |y − study| at each SNP, y being 0, ½ or 1; the mean of D in units of its standard error.

    Example:
        >>> member = np.array([[2, 0, 2, 1]], dtype=np.int8)
        >>> away = np.array([0.6, 0.4, 0.7, 0.5])
        >>> bool(homer_distance(member, away, np.full(4, 0.5))[0] > 0)
        True
    """
    y = np.array([[0.0], [0.5], [1.0]])
    distance = np.abs(y - population) - np.abs(y - study)
    count = genomes.shape[1]
    mean = _looked_up(genomes, distance) / count
    variance = _looked_up(genomes, distance**2) / count - mean**2
    return np.asarray(mean / np.sqrt(np.maximum(variance, 1e-300) / count))


def likelihood_ratio(genomes: Genotypes, counts: Ints, *, people: int, population: Floats) -> Floats:
    """The log likelihood ratio of membership, from exact allele counts among ``people`` participants.

    A participant leaves 2n − 2 alleles to chance, anybody else 2n: the ratio of the two binomial probabilities is
    C(C−1)/(2n(2n−1)p²) for the genotype 2, and so on. No test has more power (Neyman & Pearson 1933).
    """
    alleles = 2 * positive_int(people, "people")
    table = np.empty((3, counts.size))
    with np.errstate(divide="ignore"):
        c, p = counts.astype(np.float64), population
        pairs = float(alleles * (alleles - 1))
        table[0] = np.log((alleles - c) * np.maximum(alleles - c - 1, 0) / pairs) - 2 * np.log(1 - p)
        table[1] = np.log(c * (alleles - c) / pairs) - np.log(p) - np.log(1 - p)
        table[2] = np.log(c * np.maximum(c - 1, 0) / pairs) - 2 * np.log(p)
    return _looked_up(genomes, table)


def noisy_likelihood_ratio(
    genomes: Genotypes, released: npt.NDArray[np.number], *, people: int, population: Floats, noise: float
) -> Floats:
    """The same for counts with Gaussian noise of standard deviation ``noise``, which the attacker knows.

    Chance and noise add: both hypotheses are normal laws, with the moments of their binomials and the noise.
    """
    n = positive_int(people, "people")
    p, table = population, np.empty((3, population.size))
    answers = released.astype(np.float64)
    without = log_normal(answers, 2 * n * p, 2 * n * p * (1 - p) + noise**2)
    for genotype in range(3):
        mean, variance = (2 * n - 2) * p + genotype, (2 * n - 2) * p * (1 - p) + noise**2
        table[genotype] = log_normal(answers, mean, variance) - without
    return _looked_up(genomes, table)


def insider_ratio(genome: Genotypes, left: npt.NDArray[np.number], *, noise: float) -> float:
    """The same for whoever knows the genomes of all the other participants: ``left`` is the release without them.

    That is noise, or noise around the genome in question: the worst case that differential privacy speaks of.

    Example:
        >>> insider_ratio(np.array([2, 1, 0], dtype=np.int8), np.array([1, 1, 5]), noise=2.0)
        0.125
    """
    if genome.shape != left.shape:
        raise InvalidData("the genome and what is left of the release need one entry for each SNP")
    own = genome.astype(np.float64)
    return float(own @ left - own @ own / 2) / noise**2


def power(*, snps: int, people: int, false_alarms: float) -> float:
    """Φ(√(m/n) − z_α): the share of participants that the likelihood ratio finds, from exact frequencies.

    Example:
        >>> round(power(snps=25_000, people=1000, false_alarms=0.01), 3)
        0.996
    """
    ratio = positive_int(snps, "snps") / positive_int(people, "people")
    return float(ndtr(np.sqrt(ratio) + ndtri(false_alarms)))


# ---------------------------------------------------------------------- the study and its release


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A synthetic study: allele counts of all ``people``, and the genomes of some of them and of some others."""

    people: int
    population: Floats
    counts: Ints
    participants: Genotypes
    others: Genotypes


def make_study(*, seed: int, people: int, snps: int, participants: int, others: int) -> Study:
    """Draw allele frequencies evenly (Beta(1, 1)) from 0.05 to 0.95, and genotypes in Hardy–Weinberg proportions.

    Of participants that aren't tested only the sum is drawn.
    """
    for value, name in ((people, "people"), (snps, "snps"), (participants, "participants"), (others, "others")):
        positive_int(value, name)
    if participants > people:
        raise InvalidParameter(f"at most all {people} people of the study can be tested; got {participants}")
    rng = np.random.default_rng(seed)
    population = 0.05 + 0.9 * rng.beta(1.0, 1.0, snps)
    genomes = np.empty((participants + others, snps), dtype=np.int8)
    for start in range(0, snps, BLOCK):
        at = population[start : start + BLOCK].astype(np.float32)
        shape = (genomes.shape[0], at.size)
        genomes[:, start : start + BLOCK] = (rng.random(shape, dtype=np.float32) < at).view(np.int8)
        genomes[:, start : start + BLOCK] += (rng.random(shape, dtype=np.float32) < at).view(np.int8)
    tested = genomes[:participants]
    counts = rng.binomial(2 * (people - participants), population) + tested.sum(axis=0, dtype=np.int64)
    return Study(
        people=people, population=population, counts=counts, participants=tested, others=genomes[participants:]
    )


def sensitivity(snps: int) -> Sensitivity:
    """How far one person moves the counts: each by two alleles at most."""
    return Sensitivity.contribution(groups=snps, per_group=2)


def mechanism(snps: int, guarantee: Guarantee) -> DiscreteGaussian:
    """The noise for allele counts at so many SNPs, towards adding or removing one whole genome."""
    return calibrate(DiscreteGaussian, guarantee, sensitivity(snps))


# ---------------------------------------------------------------------- both releases under attack


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scores of one attacker: of those who took part and of those who didn't."""

    participants: Floats
    others: Floats

    def at(self, false_alarms: npt.ArrayLike) -> Floats:
        """The share of participants found."""
        return detected(self.participants, self.others, false_alarms)


def attack_exact(study: Study, *, snps: int | None = None) -> Scored:
    """The likelihood ratio on exact counts of the first ``snps`` SNPs, or of all."""
    first = slice(0, snps)
    scores = [
        likelihood_ratio(
            genomes[:, first], study.counts[first], people=study.people, population=study.population[first]
        )
        for genomes in (study.participants, study.others)
    ]
    return Scored(participants=scores[0], others=scores[1])


def attack_by_distance(study: Study) -> Scored:
    """Homer's distance on the frequencies of all SNPs."""
    frequencies = study.counts / (2 * study.people)
    scores = [homer_distance(genomes, frequencies, study.population) for genomes in (study.participants, study.others)]
    return Scored(participants=scores[0], others=scores[1])


def attack_noisy(study: Study, release: Counts, *, noise: float, watch: Watch = unwatched) -> tuple[Scored, Scored]:
    """The likelihood ratio that knows the noise, and the one that knows all the other participants too.

    The first tests everybody on one release: people known not to have taken part set the threshold.
    The second knows another set of people in each test, so each test has a release of its own: with the same noise in
    all of them, the scores of the others would betray noise that this attacker doesn't know.
    """
    released = release(study.counts)
    outside, inside = [], []
    tests = len(study.participants) + len(study.others)
    for genomes, took_part in ((study.participants, True), (study.others, False)):
        outside.append(
            noisy_likelihood_ratio(genomes, released, people=study.people, population=study.population, noise=noise)
        )
        scores = np.empty(len(genomes))
        for index, genome in enumerate(genomes):
            if index % 100 == 0:
                watch((index + (0 if took_part else len(study.participants))) / tests, "attacking noisy counts")
            left = release(study.counts) - study.counts
            scores[index] = insider_ratio(genome, left + genome if took_part else left, noise=noise)
        inside.append(scores)
    return Scored(participants=outside[0], others=outside[1]), Scored(participants=inside[0], others=inside[1])


def genomes(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    people: int = 1000,
    snps: int = 25_000,
    participants: int = 1000,
    others: int = 2000,
    epsilon: Number = 1,
    delta: Number = "1e-5",
) -> Outcome:
    """Find the participants of a study in its allele counts, published exactly and with noise.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        people: How many take part in the study.
        snps: In how many places of the genome alleles are counted.
        participants: How many of them are tested.
        others: How many who didn't take part are tested beside them.
        epsilon: Of the private counts, together.
        delta: Of the private counts, together.
    """
    guarantee = Guarantee(epsilon=epsilon, delta=delta)
    watch(0.0, "drawing genomes")
    study = make_study(seed=seed, people=people, snps=snps, participants=participants, others=others)
    watch(0.3, "attacking exact counts")
    homer, ratio = attack_by_distance(study), attack_exact(study)
    sizes = sorted({max(1, round(snps * share)) for share in (0.01, 0.03, 0.08, 0.2, 0.45, 1.0)})
    powers = []
    for done, size in enumerate(sizes):
        watch(0.5 + 0.2 * done / len(sizes), "attacking fewer SNPs")
        powers.append((attack_exact(study, snps=size) if size < snps else ratio).at(MORE_FALSE_ALARMS))
    watch(0.7, "releasing noisy counts")
    noisy = mechanism(snps, guarantee)
    loss = noisy.loss(sensitivity(snps))
    outsider, insider = attack_noisy(study, noisy.release, noise=float(noisy.scale), watch=part_of(watch, 0.7, 1.0))
    watch(1.0, "done")
    cost = f"ε = {loss.epsilon(guarantee.delta):.3g}, δ = {float(guarantee.delta):g} for a whole genome"
    most = 100 * float(most_detected(FALSE_ALARMS, guarantee))
    theory = power(snps=snps, people=people, false_alarms=FALSE_ALARMS)
    error = noisy.error(0.95) / (2 * people)
    each = 100 / people
    bound = f"{cost}; on average nobody finds more than {most:.1f}%"
    counted = f"each is {each:g}% of the study, {snps} SNPs, theory {100 * theory:.1f}%; {_more(ratio)}"

    def score(release: ReleaseKind, how: str, found: Scored, detail: str, published: Published | None = None) -> Score:
        return Score(
            release=release,
            what=f"participants found at {100 * FALSE_ALARMS:g}% false alarms, {how}",
            value=float(found.at(FALSE_ALARMS)),
            guessing=FALSE_ALARMS,
            published=published,
            detail=detail,
        )

    exact, private = ReleaseKind.UNPROTECTED, ReleaseKind.PRIVATE
    return Outcome(
        attack="genomes",
        scores=(
            score(exact, "likelihood ratio", ratio, counted, HOMER),
            score(exact, "Homer's distance", homer, _more(homer)),
            score(private, "likelihood ratio that knows the noise", outsider, f"{_chance(outsider)}; {bound}"),
            score(private, "by one who knows all other genomes", insider, f"{_chance(insider)}; {bound}"),
        ),
        summary=(
            f"Exact frequencies of {snps} SNPs tell who took part in a study of {people}. With noise for {cost}, they "
            f"don't; the price is an error of ±{error:.2g} for each frequency: publish fewer SNPs, or pool more people."
        ),
        draw=lambda figure: _draw(
            figure, homer, ratio, outsider, insider, guarantee, np.array(sizes) / people, np.array(powers)
        ),
        size=(9.0, 4.0),
    )


ATTACK = Attack(
    name="genomes",
    title="Membership in a genomic study",
    question="Do allele frequencies of a study tell who took part in it?",
    run=genomes,
)


# ---------------------------------------------------------------------- sums over SNPs, and the picture


def _blocks(genomes: Genotypes, *tables: npt.NDArray[np.number]) -> Iterator[tuple[Genotypes, list[Floats]]]:
    """Pieces of genomes and of tables by SNP, small enough for the cache."""
    if genomes.ndim != 2 or any(table.shape[-1] != genomes.shape[1] for table in tables):
        raise InvalidData("genomes need one row for each person and one column for each SNP of the release")
    if genomes.size and (genomes.min() < 0 or genomes.max() > 2):
        raise InvalidData("a genotype is 0, 1 or 2: how many of both alleles are the counted one")
    for start in range(0, genomes.shape[1], BLOCK):
        cut = slice(start, start + BLOCK)
        yield genomes[:, cut], [table[..., cut].astype(np.float64) for table in tables]


def _looked_up(genomes: Genotypes, table: Floats) -> Floats:
    """For each genome the sum over SNPs of the entry of its genotype; −∞ if one of them is."""
    total, ruled_out = np.zeros(genomes.shape[0]), np.zeros(genomes.shape[0], dtype=bool)
    for part, (rows,) in _blocks(genomes, table):
        finite = np.where(np.isfinite(rows), rows, 0.0)
        total += finite[0].sum()
        for genotype in (1, 2):
            total += (part == genotype) @ (finite[genotype] - finite[0])
        for genotype in range(3):
            never = ~np.isfinite(rows[genotype])
            ruled_out |= (part[:, never] == genotype).any(axis=1)
    return np.where(ruled_out, -np.inf, total)


def _more(found: Scored) -> str:
    """The same at other rates of false alarms."""
    return ", ".join(f"{100 * float(found.at(rate)):.1f}% at {100 * rate:g}%" for rate in (0.001, 0.05))


def _chance(found: Scored) -> str:
    """How far chance moves the share that is found at the main rate of false alarms."""
    share = float(found.at(FALSE_ALARMS))
    error = detection_error(share, FALSE_ALARMS, members=found.participants.size, others=found.others.size)
    return f"±{100 * error:.1f}% by chance"


def _draw(
    figure: Figure,
    homer: Scored,
    ratio: Scored,
    outsider: Scored,
    insider: Scored,
    guarantee: Guarantee,
    ratios: Floats,
    powers: Floats,
) -> None:
    left, right = figure.subplots(1, 2)
    left.plot(RATES, ratio.at(RATES), color=EXACT, label="exact, likelihood ratio")
    left.plot(RATES, homer.at(RATES), color=EXACT, linestyle="--", label="exact, Homer's distance")
    left.plot(
        RATES, most_detected(RATES, guarantee), color=LINE, label=f"most that ε = {float(guarantee.epsilon):g} allows"
    )
    left.plot(RATES, insider.at(RATES), color=PRIVATE, linestyle="--", label="noisy, all others known")
    left.plot(RATES, outsider.at(RATES), color=PRIVATE, label="noisy, likelihood ratio")
    left.plot(RATES, RATES, color=FAINT, linestyle=":", label="guessing")
    _rates(left)
    left.set_ylabel("participants found")
    left.set_title("Who took part?")
    fine = np.linspace(0, max(1.0, float(ratios.max()) * 1.05), 200)
    right.plot(fine, ndtr(np.sqrt(fine) + ndtri(MORE_FALSE_ALARMS)), color=FAINT, label="Φ(√(m/n) − z)")
    right.plot(ratios, powers, "o", color=EXACT, label="exact counts, simulated")
    right.set_xlabel("SNPs for each participant, m/n")
    right.set_ylabel(f"participants found at {100 * MORE_FALSE_ALARMS:g}% false alarms")
    right.set_ylim(0, 1.03)
    right.set_title("How many SNPs it takes")
    right.legend(loc="lower right", fontsize=8)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def _rates(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlim(1e-3, 1)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("false alarms among others (share)")
