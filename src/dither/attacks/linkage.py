"""Linkage: a hospital table without names is joined with what else is known about people.

In 1997 Sweeney bought the voter list of Cambridge, Massachusetts, and found the governor's record in a hospital table
that had no names but postcode, birth date and sex (told in "k-Anonymity: a Model for Protecting Privacy", International
Journal on Uncertainty, Fuzziness and Knowledge-based Systems, 2002). From the census of 1990 she reported that 87% of
the population of the United States "had reported characteristics that likely made them unique based only on {5-digit
ZIP, gender, date of birth}", 53% with the place and 18% with the county instead of the ZIP code ("Simple Demographics
Often Identify People Uniquely", Carnegie Mellon University, Data Privacy Working Paper 3, 2000). Golle ("Revisiting the
Uniqueness of Simple Demographics in the US Population", WPES 2006) found 63% from the census of 2000. She called people
of one age band and area unique where there were fewer of them than birth dates; he computed how many are expected to
share theirs with nobody. On the population that is made up here each way of counting comes near its published figure.

The population is made up (see ``population``); nothing of the census but its ages is used. Neither paper reports what
share of a hospital's patients a voter list names, so that figure stands alone.

Against it stands the same table behind a curator, which answers one question with ε: counts by postcode, age band, sex
and diagnosis. The attacker knows the mechanism, and in the worst case every other patient's record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.attacks import hospital
from dither.attacks.base import Attack, Outcome, Published, ReleaseKind, Score
from dither.attacks.databases import as_budget, curated_database
from dither.attacks.hospital import Patients, Voters
from dither.attacks.population import Areas, Births, Uniqueness, areas, births, keys, populate, uniqueness_table
from dither.errors import InvalidParameter
from dither.mechanisms.base import Floats, Ints
from dither.pictures import EXACT, FAINT, LINE, PRIVATE
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEENEY = "Sweeney 2000"
GOLLE = "Golle 2006"
CURVE = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
GROUPED = ("postcode", "age_band", "sex", "diagnosis")
QUESTION = f"SELECT {', '.join(GROUPED)}, COUNT(*) AS patients FROM patients GROUP BY {', '.join(GROUPED)}"  # noqa: S608
POLICY = """\
[tables.patients]
private = true
privacy_unit_column = "person"

[tables.patients.columns]
person = {{ type = "integer" }}
{columns}
"""


def link(unnamed: npt.ArrayLike, named: npt.ArrayLike) -> Ints:
    """Whom each row of a table without names belongs to: the only row of a named table with the same key, else −1.

    A key that several rows of either table have links none of them. Make the keys of both tables together by ``keys``.

    Example:
        >>> link([7, 8, 9, 9], [9, 7, 8, 8]).tolist()
        [1, -1, -1, -1]
    """
    wanted, known = np.asarray(unnamed, dtype=np.int64), np.asarray(named, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    first = np.searchsorted(known[order], wanted, side="left")
    matches = np.searchsorted(known[order], wanted, side="right") - first
    _, inverse, counts = np.unique(wanted, return_inverse=True, return_counts=True)
    sure = (matches == 1) & (counts[inverse] == 1)
    found = np.full(wanted.shape, -1, dtype=np.int64)
    found[sure] = order[first[sure]]
    return found


def certainty(alike: npt.ArrayLike, *, listed: float, correct: float) -> Floats:
    """How sure a link is, where ``alike`` other people are expected to have the same key.

    A share ``listed`` of the people is on the list, a share ``correct`` with the right key. The row either belongs to
    who is listed, or to somebody who isn't (or isn't correctly) and happens to share a key with one entry. With Poisson
    numbers of people the odds are c to (1 − c)·l·λ.

    Example:
        >>> certainty([0, 1], listed=0.5, correct=0.5).tolist()
        [1.0, 0.6666666666666666]
    """
    expected = np.asarray(alike, dtype=np.float64)
    if not (expected >= 0).all() or not 0 < correct <= listed <= 1:
        raise InvalidParameter("expected numbers of people are from 0 on, and shares fulfil 0 < correct ≤ listed ≤ 1")
    return np.asarray(correct / (correct + (1 - correct) * listed * expected))


def most_likely(noisy: Floats, others: Floats, prior: Floats, *, epsilon: float) -> Ints:
    """The most probable group of each target, for somebody who knows everybody else's: nothing better can be done.

    Rows are targets and columns groups: the released counts, which have discrete Laplace noise of scale 1/ε, those of
    all others, and the attacker's prior. Without the target the rest is noise; with the target one group has one more.
    """
    if not noisy.shape == others.shape == prior.shape or noisy.ndim != 2:
        raise InvalidParameter("noisy counts, others' counts and priors are tables of the same shape")
    if not epsilon > 0:
        raise InvalidParameter(f"epsilon must be above 0; got {epsilon}")
    rest = noisy - others
    with np.errstate(divide="ignore"):
        return np.asarray((np.log(prior) + epsilon * (np.abs(rest) - np.abs(rest - 1))).argmax(axis=1))


def success_bound(guessing: float, *, epsilon: float) -> float:
    """The most that anybody can reach with a release of this ε (add_remove), where g is the best without it.

    No outcome is more than e^ε times as likely as if the target's row weren't there, so success is at most e^ε·g; and
    no two values of the row can be told apart by more than e^2ε, so it is at most g·e^2ε/(g·e^2ε + 1 − g).
    """
    if not 0 <= guessing <= 1 or not epsilon >= 0:
        raise InvalidParameter("guessing is a share and epsilon is from 0 on")
    odds = guessing * math.exp(min(2 * epsilon, 600.0))
    return min(1.0, math.exp(min(epsilon, 600.0)) * guessing, odds / (odds + 1 - guessing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a join with the voter list brings: shares of all patients, of the claims, and how sure the attacker was."""

    claimed: float
    right: float
    precision: float
    expected_precision: float


def name_patients(patients: Patients, voters: Voters, where: Areas, law: Births) -> Joined:
    """Join the hospital table with the voter list on postcode, birth date and sex."""
    both = keys(*(np.concatenate([getattr(t, n) for t in (patients, voters)]) for n in ("postcode", "days", "sex")))
    found = link(both[: patients.person.size], both[patients.person.size :])
    claims = np.flatnonzero(found >= 0)
    right = voters.person[found[claims]] == patients.person[claims]
    alike = where.sizes[patients.postcode[claims]] * law.probabilities[patients.sex[claims], patients.days[claims]]
    sure = certainty(
        alike, listed=hospital.REGISTERED, correct=hospital.REGISTERED * (1 - hospital.MOVED) * (1 - hospital.MISTYPED)
    )
    return Joined(
        claimed=claims.size / patients.person.size,
        right=float(right.sum()) / patients.person.size,
        precision=float(right.mean()) if claims.size else 0.0,
        expected_precision=float(sure.mean()) if claims.size else 0.0,
    )


def look_up(patients: Patients) -> float:
    """How often somebody tells a patient's diagnosis who knows their postcode, birth date and sex, from the table.

    Among rows that look the same one is taken at random.
    """
    made = keys(patients.postcode, patients.days, patients.sex)
    _, inverse, alike = np.unique(made, return_inverse=True, return_counts=True)
    _, same, with_it = np.unique(keys(inverse, patients.diagnosis), return_inverse=True, return_counts=True)
    return float((with_it[same] / alike[inverse]).mean())


def ask_for_counts(patients: Patients, postcodes: int, epsilons: Sequence[float], watch: Watch) -> Mapping[float, Ints]:
    """The curator's answer to ``QUESTION``, once for each ε, each by itself: an attacker gets one of them."""
    shape = (postcodes, len(hospital.AGE_BANDS) - 1, 2, len(hospital.DIAGNOSES))
    table = pa.table({name: pa.array(getattr(patients, name)) for name in ("person", *GROUPED)})
    columns = "\n".join(
        f'{name} = {{ type = "integer", in = {list(range(size))} }}' for name, size in zip(GROUPED, shape, strict=True)
    )
    answers = {}
    # a whole number, which a policy states exactly; each answer is charged to it
    facts, budget = POLICY.format(columns=columns), Fraction(math.ceil(sum(map(as_budget, epsilons))))
    with curated_database("patients", table, tables=facts, epsilon=budget) as curator:
        for index, epsilon in enumerate(epsilons):
            watch(index / len(epsilons), f"asking the curator with ε = {epsilon:g}")
            answer = curator.sql(QUESTION, epsilon=epsilon).table
            counts = np.zeros(shape, dtype=np.int64)
            counts[tuple(answer.column(name).to_numpy() for name in GROUPED)] = answer.column("patients").to_numpy()
            answers[epsilon] = counts
    return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How often a diagnosis is told right: without the counts, from them, and by who knows all other records besides.

    ``guessing`` is by the public rates; ``guessing_best`` by the chances from which the diagnoses were drawn, which is
    the most that somebody can know of a patient from everybody else's record.
    """

    guessing: float
    from_counts: float
    from_counts_of_others: float
    guessing_best: float
    knowing_others: float


def tell_diagnoses(patients: Patients, noisy: Ints, *, epsilon: float) -> Told:
    """Attack every patient with released counts: with what the table's attacker knows, and with everybody else's row.

    The first attacker takes local rates from the counts, drawn towards the public ones; the second removes the others'
    rows and weighs what is left by the law of the noise. ``from_counts_of_others`` is what the first would have said
    had the patient's own row not been counted: the difference is what taking part costs the patient.
    """
    exact = hospital.counts_of(patients, noisy.shape[0])
    at = (patients.postcode, patients.age_band, patients.sex)
    rates, shown = hospital.diagnosis_rates()[patients.age_band, patients.sex], noisy[at].astype(np.float64)
    own = np.eye(len(hospital.DIAGNOSES))[patients.diagnosis]
    # as much trust in the public rates as in fifty patients, and more where the noise is larger
    public = rates * (50 + 2 / epsilon**2)

    def share(guesses: Ints) -> float:
        return float((guesses == patients.diagnosis).mean())

    return Told(
        guessing=share(rates.argmax(axis=1)),
        from_counts=share((public + shown).argmax(axis=1)),
        from_counts_of_others=share((public + shown - own).argmax(axis=1)),
        guessing_best=float(patients.chances.max(axis=1).mean()),
        knowing_others=share(most_likely(shown, exact[at] - own, patients.chances, epsilon=epsilon)),
    )


def linkage(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    people: int = 1_000_000,
    patients: int = 20_000,
    epsilon: float = 0.5,
    country: int = 281_000_000,
) -> Outcome:
    """Join a hospital table with a voter list, then attack the same hospital's counts with ε.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        people: How many live around the hospital, simulated one by one.
        patients: How many of them it has treated.
        epsilon: What the private counts cost.
        country: For how many people uniqueness is computed.
    """
    if not epsilon > 0:
        raise InvalidParameter(f"epsilon must be above 0; got {epsilon}")
    maker = np.random.default_rng(seed)
    watch(0.0, "making a population")
    law = births()
    unique = uniqueness_table(areas(country, maker), law, part_of(watch, 0.05, 0.4))
    state = populate(areas(people, maker), maker)
    rows = hospital.admit(state, patients, maker)
    watch(0.5, "joining with the voter list")
    named = name_patients(rows, hospital.register(state, maker), state.areas, law)
    table = look_up(rows)
    wanted = sorted({*CURVE, epsilon})
    noisy = ask_for_counts(rows, state.areas.sizes.size, wanted, part_of(watch, 0.6, 0.95))
    told = {asked: tell_diagnoses(rows, counts, epsilon=asked) for asked, counts in noisy.items()}
    watch(1.0, "done")
    return _outcome(unique, named, table, told, epsilon)


def _outcome(
    unique: tuple[Uniqueness, ...], named: Joined, table: float, told: Mapping[float, Told], epsilon: float
) -> Outcome:
    mine = told[epsilon]
    bound = success_bound(mine.guessing_best, epsilon=epsilon)
    by_postcode = unique[0]
    assert by_postcode.by_threshold is not None
    exact, private = ReleaseKind.UNPROTECTED, ReleaseKind.PRIVATE

    def told_right(release: ReleaseKind, how: str, share: float, guessing: float, detail: str = "") -> Score:
        return Score(release=release, what=how, value=share, guessing=guessing, detail=detail)

    def named_people(what: str, share: float, published: Published | None = None, detail: str = "") -> Score:
        return Score(release=exact, what=what, value=share, published=published, detail=detail)

    scores = (
        told_right(exact, "diagnoses told right, knowing postcode, birth date and sex", table, mine.guessing),
        named_people(
            "patients named through a voter list",
            named.right,
            detail=f"of the names claimed {100 * named.precision:.0f}% were right, and the attacker expected "
            f"{100 * named.expected_precision:.0f}%",
        ),
        named_people(
            "people alone with their postcode, birth date and sex", by_postcode.alone, Published("63%", GOLLE)
        ),
        named_people(
            "the same, called unique by counting possible values", by_postcode.by_threshold, Published("87%", SWEENEY)
        ),
        told_right(
            private,
            f"diagnoses told right from counts with ε = {epsilon:g}, with the same knowledge",
            mine.from_counts,
            mine.guessing,
            f"{100 * mine.from_counts_of_others:.1f}% if the patient's own row isn't counted",
        ),
        told_right(
            private,
            f"the same with ε = {epsilon:g}, knowing every other patient's record",
            mine.knowing_others,
            mine.guessing_best,
            f"nobody can reach more than {100 * bound:.1f}%",
        ),
    )
    summary = (
        f"To a neighbour who knows a birth date, the table without names tells {100 * table:.1f}% of the diagnoses. A "
        f"voter list names {100 * named.right:.0f}% of the patients outright. From counts with ε = {epsilon:g} that "
        f"neighbour tells {100 * mine.from_counts:.0f}%, without them {100 * mine.guessing:.0f}%; even somebody who "
        f"knows all other records tells {100 * mine.knowing_others:.0f}%, and without them "
        f"{100 * mine.guessing_best:.0f}%."
    )

    return Outcome(
        attack="linkage",
        scores=scores,
        summary=summary,
        draw=lambda figure: _draw(figure, unique, table, told, epsilon),
        size=(10.0, 4.2),
    )


def _draw(
    figure: Figure, unique: tuple[Uniqueness, ...], table: float, told: Mapping[float, Told], epsilon: float
) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    place = np.arange(len(unique))[::-1]
    bars = left.barh(place, [100 * row.alone for row in unique], height=0.55, color=FAINT, label="expected, here")
    left.bar_label(bars, ["" if row.sweeney else _percent(row.alone) for row in unique], padding=4, fontsize=9)
    for marker, name, shown in (
        ("|", "called unique, here", [row.by_threshold if row.sweeney else None for row in unique]),
        ("o", f"published, {GOLLE}", [row.golle for row in unique]),
        ("D", f"published, {SWEENEY}", [row.sweeney for row in unique]),
    ):
        at = [(100 * share, spot) for share, spot in zip(shown, place, strict=True) if share is not None]
        colour, size = (LINE, 15) if marker == "|" else (EXACT, 6)
        left.plot(*zip(*at, strict=True), marker, color=colour, markersize=size, markeredgewidth=2, label=name)
    left.set_yticks(place, [row.known for row in unique])
    left.set_xlim(0, 100)
    left.set_xlabel("people who are unique, %")
    left.set_title("Uniqueness by what is known")
    left.legend(loc="lower right")
    left.grid(visible=False, axis="y")

    asked = sorted(told)
    guessing, best = told[epsilon].guessing, told[epsilon].guessing_best
    smooth = np.geomspace(asked[0], asked[-1], 60)
    bound = [100 * success_bound(best, epsilon=float(at)) for at in smooth]
    right.axhline(100 * table, color=EXACT)
    right.plot(smooth, bound, ":", color=PRIVATE)
    right.plot(asked, [100 * told[at].knowing_others for at in asked], "o-", color=PRIVATE)
    right.plot(asked, [100 * told[at].from_counts for at in asked], "s-", color=LINE, markersize=4)
    right.axhline(100 * guessing, color=FAINT, linestyle="--")
    start, end = asked[0], asked[-1]
    right.text(end, 47, "knowing all\nother records", ha="right", va="center", color=PRIVATE)
    right.text(end, 28, "knowing date,\npostcode, sex", ha="right", va="bottom", color=LINE)
    right.text(start, 100 * table - 2, "table without names,\nknowing date, postcode, sex", va="top", color=EXACT)
    right.text(start, 100 * guessing - 2, "guessing by public rates", va="top", color="#666666")
    right.text(smooth[30] * 0.9, bound[30] + 4, "the most possible", ha="right", color=PRIVATE)
    right.set_xscale("log")
    right.set_xticks(asked, [f"{at:g}" for at in asked])
    right.minorticks_off()
    right.set_ylim(0, 104)
    right.set_xlabel("ε of the counts")
    right.set_ylabel("diagnoses told right, %")
    right.set_title("What counts with ε tell")


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%" if share >= 1e-5 else "0%"


ATTACK = Attack(
    name="linkage",
    title="Linkage with a voter list",
    question="Who is the patient in a table without names, given postcode, birth date and sex?",
    run=linkage,
)
