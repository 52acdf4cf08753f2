"""Model inversion: a sensitive feature, guessed from a model, the other features and the outcome.

Fredrikson et al. (2014, USENIX Security) take a model that doses warfarin by genotype, a patient's demographics and
stable dose, and name the genotype with the largest product of prior probability and likelihood of the dose; Fredrikson,
Jha & Ristenpart (2015, ACM CCS) do so with classifiers that show their confidence. But the dose itself tells of the
genotype, whoever's data the model was made from: the first paper sees "no discernible difference between the model
inverter's performance on the training and validation sets" (as quoted by McSherry, "Statistical correlation considered
harmful", 2016). Inference from what is true of everybody is no leak of participation. What a model betrays about those
who took part is the difference to a model made without them (Yeom et al. 2018, IEEE CSF, call it the attacker's
advantage), and it is this difference that differential privacy bounds: by δ(0) of the loss, the largest distance
between the laws of what is released with a person and without.

Ours differs from theirs: patients are synthetic, with one gene of three genotypes. A model of five features behaves as
theirs did; one of two hundred, fitted to 250 patients, shows what an overfitted model betrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dither.attacks.base import Attack, Outcome, Published, ReleaseKind, Score
from dither.attacks.training import NoisyDescent, Objective, Publish, Trained
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import Floats, Ints
from dither.numeric import Number, positive_int
from dither.pictures import EXACT, FAINT, LINE, PRIVATE
from dither.privacy import Guarantee
from dither.progress import Watch, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Fit: TypeAlias = Callable[["Dosed"], Floats]

# Variants of the gene, in Hardy–Weinberg proportions at the frequency 0.4; everything here is public knowledge.
PRIORS: Floats = np.array([0.36, 0.48, 0.16])
# How a genotype stands among the features: its number of variants, less the mean.
CENTRED: Floats = np.array([-0.8, 0.2, 1.2])
# Columns of the features: 1, the genotype (centred), age, height, weight, then yes/no items without influence.
GENE, FEW = 1, 5
# The weekly dose on the scale of its square root, about a public mean: by genotype, age, height, weight, and chance.
MEAN_ROOT_DOSE, EFFECTS, CHANCE = 5.6, np.array([0.0, -0.85, -0.4, 0.15, 0.25]), 0.9
STEPS, CLIP, RATE = 10, 2.5, 0.002
SPREADS, SHRINKS = np.geomspace(0.1, 4.0, 25), (0.25, 0.5, 0.75, 1.0)
FREDRIKSON = Published(
    '"no discernible difference" between patients in the training data and others',
    "Fredrikson et al. 2014, as quoted by McSherry 2016",
)


# ---------------------------------------------------------------------- the attackers


def invert(
    weights: Floats, features: Floats, outcomes: Floats, *, priors: Floats, column: int, values: Floats, spread: float
) -> Ints:
    """For each row the index of the likeliest value of a hidden column, given the other columns and the outcome.

    The largest of ln prior − (outcome − prediction)²/2spread²; what stands in the hidden column isn't looked at.

    Example:
        >>> rows = np.array([[1.0, 99.0], [1.0, 99.0]])
        >>> told = np.array([0.1, 2.2])
        >>> flat = np.array([0.5, 0.5])
        >>> invert(np.array([0.0, 2.0]), rows, told, priors=flat, column=1, values=np.array([0.0, 1.0]), spread=1.0)
        array([0, 1])
    """
    told = _log_posteriors(weights, features, outcomes, priors, column, values, spread)
    return np.asarray(np.argmax(told, axis=1), dtype=np.int64)


def _log_posteriors(
    weights: Floats, features: Floats, outcomes: Floats, priors: Floats, column: int, values: Floats, spread: float
) -> Floats:
    if features.ndim != 2 or outcomes.shape != (len(features),) or weights.shape != (features.shape[1],):
        raise InvalidData("features need one row for each outcome and one column for each weight")
    if len(priors) != len(values) or not spread > 0:
        raise InvalidParameter("each value of the hidden column needs a prior, and the spread must be above 0")
    rest = features @ weights - features[:, column] * weights[column]
    residuals = outcomes[:, None] - rest[:, None] - weights[column] * values
    return np.asarray(np.log(priors) - residuals**2 / (2 * spread**2), dtype=np.float64)


def watched_posteriors(
    plan: NoisyDescent,
    trained: Trained,
    features: Floats,
    outcomes: Floats,
    *,
    others: Floats,
    column: int,
    values: Floats,
) -> Floats:
    """For each row and value of the hidden column, what watching the training adds to its log probability.

    ``others[t]`` holds for each step and row the sum of the clipped gradients of all *other* people in the training
    data, which this attacker knows: what is left of a released sum is noise around the gradient with the true value.
    """
    told = np.zeros((len(outcomes), len(values)))
    for state, released, known in zip(trained.states, trained.sums, others, strict=True):
        left = released - known
        for index, value in enumerate(values):
            rows = features.copy()
            rows[:, column] = value
            guess = plan.gradients(state, rows, outcomes)
            told[:, index] += (np.einsum("ij,ij->i", left, guess) - np.einsum("ij,ij->i", guess, guess) / 2) / (
                plan.scale**2
            )
    return told


# ---------------------------------------------------------------------- patients and models


@dataclass(frozen=True, slots=True, kw_only=True)
class Dosed:
    """Synthetic patients: features with the genotype among them, the genotype by itself, and the dose (see above)."""

    features: Floats
    genotypes: Ints
    doses: Floats

    @property
    def few(self) -> Dosed:
        """The same with the five features that matter."""
        return Dosed(features=self.features[:, :FEW], genotypes=self.genotypes, doses=self.doses)


def make_patients(rng: np.random.Generator, *, count: int, items: int) -> Dosed:
    """Draw so many patients with so many yes/no items that have no influence on the dose."""
    genotypes = rng.choice(3, size=positive_int(count, "count"), p=PRIORS)
    body = rng.normal(size=(count, 3))
    answers = np.where(rng.random((count, items)) < 0.5, 1.0, -1.0)
    features = np.column_stack([np.ones(count), CENTRED[genotypes], body, answers])
    doses = features[:, :FEW] @ EFFECTS + CHANCE * rng.normal(size=count)
    return Dosed(features=features, genotypes=genotypes.astype(np.int64), doses=doses)


def regression(patients: Dosed) -> Floats:
    """Least squares on everything that was recorded."""
    return np.asarray(np.linalg.lstsq(patients.features, patients.doses, rcond=None)[0], dtype=np.float64)


def dosing_plan(guarantee: Guarantee) -> NoisyDescent:
    """How the private model is trained; its learning rate is made for about 250 patients."""
    return NoisyDescent.calibrated(guarantee, objective=Objective.SQUARED, steps=STEPS, clip=CLIP, rate=RATE)


# ---------------------------------------------------------------------- models under attack


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverted:
    """How often the genotype was named rightly: of people in the data, and of the same people by a model without them.

    ``dose_error`` is the mean absolute error for new patients, in mg a week.
    """

    inside: float
    outside: float
    dose_error: float

    @classmethod
    def mean(cls, inside: Sequence[float], outside: Sequence[float], errors: Sequence[float]) -> Inverted:
        """The means over several models."""
        return cls(inside=float(np.mean(inside)), outside=float(np.mean(outside)), dose_error=float(np.mean(errors)))

    @property
    def gap(self) -> float:
        """What taking part adds."""
        return self.inside - self.outside


def attack_model(fit: Fit, groups: tuple[Dosed, Dosed], shadow: Dosed) -> Inverted:
    """Invert a model of each group, for the group itself and for the other one.

    The attacker knows how models are made, makes one of other patients (``shadow``), and takes the spread and the
    shrinkage of predictions that are right most often about them.
    """
    own = fit(shadow)
    spread, shrink = max(
        ((float(s), k) for s in SPREADS for k in SHRINKS), key=lambda pair: _right(own * pair[1], shadow, pair[0])
    )
    models = [fit(group) for group in groups]
    inside = [_right(model * shrink, group, spread) for model, group in zip(models, groups, strict=True)]
    outside = [_right(model * shrink, group, spread) for model, group in zip(models, groups[::-1], strict=True)]
    errors = [_dose_error(model, group) for model, group in zip(models, groups[::-1], strict=True)]
    return Inverted.mean(inside, outside, errors)


def attack_training(
    plan: NoisyDescent, groups: tuple[Dosed, Dosed], *, publish: Publish | None = None
) -> tuple[Inverted, float]:
    """Watch a model being trained on each group, knowing all the others in it; and what is right without watching.

    Everybody's dose is explained by a regression on the group without them, so that participation shows in the
    training alone. ``publish`` takes the place of the noise.
    """
    inside: list[float] = []
    outside: list[float] = []
    unaided, errors = [], []
    for here, there in (groups, groups[::-1]):
        trained = plan.train(here.features, here.doses, publish=publish)
        totals = [plan.gradients(state, here.features, here.doses) for state in trained.states]
        for target, took_part in ((here, True), (there, False)):
            known = np.array(
                [
                    rows.sum(axis=0) - rows if took_part else np.tile(rows.sum(axis=0), (len(target.doses), 1))
                    for rows in totals
                ]
            )
            law = regression(there if took_part else here)
            before = _log_posteriors(law, target.features, target.doses, PRIORS, GENE, CENTRED, CHANCE)
            told = watched_posteriors(
                plan,
                trained,
                target.features,
                target.doses,
                others=known,
                column=GENE,
                values=CENTRED,
            )
            right = float(np.mean(np.argmax(before + told, axis=1) == target.genotypes))
            (inside if took_part else outside).append(right)
            unaided.append(float(np.mean(np.argmax(before, axis=1) == target.genotypes)))
        errors.append(_dose_error(trained.weights, there))
    return Inverted.mean(inside, outside, errors), float(np.mean(unaided))


def inversion(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    patients: int = 250,
    items: int = 195,
    rounds: int = 24,
    epsilon: Number = 1,
    delta: Number = "1e-5",
) -> Outcome:
    """Name the genotypes of patients by dosing models: overfitted, plain, and private.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        patients: How many a model is fitted to.
        items: How many yes/no items without influence the overfitted model has besides.
        rounds: How often all of it is done anew; results are averages.
        epsilon: Of the private model.
        delta: Of the private model.
    """
    guarantee = Guarantee(epsilon=epsilon, delta=delta)
    plan = dosing_plan(guarantee)
    rng = np.random.default_rng(seed)
    all_rich, all_plain, all_private, all_watched, unaided = [], [], [], [], []
    for done in range(positive_int(rounds, "rounds")):
        watch(done / rounds, "inverting dosing models")
        first, second, shadow = (make_patients(rng, count=patients, items=items) for _ in range(3))
        groups, plainly = (first, second), (first.few, second.few)
        all_rich.append(attack_model(regression, groups, shadow))
        all_plain.append(attack_model(regression, plainly, shadow.few))
        all_private.append(
            attack_model(lambda data: plan.train(data.features, data.doses).weights, plainly, shadow.few)
        )
        watched, without = attack_training(plan, plainly)
        all_watched.append(watched)
        unaided.append(without)
    watch(1.0, "done")
    rich, plain, private, watched = (_mean(each) for each in (all_rich, all_plain, all_private, all_watched))
    loss = plan.loss()
    cost = f"ε = {loss.epsilon(guarantee.delta):.3g}, δ = {float(guarantee.delta):g}"
    limit = f"{cost}: taking part adds at most {100 * loss.delta(0):.1f} points on average"
    exact, noisy = ReleaseKind.UNPROTECTED, ReleaseKind.PRIVATE
    prior, few = float(PRIORS.max()), f"{FEW} features"
    return Outcome(
        attack="inversion",
        scores=(
            *_scores(exact, f"overfitted model, {FEW + items} features", all_rich, guessing=prior),
            *_scores(exact, f"plain model, {few}", all_plain, guessing=prior, published=FREDRIKSON),
            *_scores(noisy, f"private model, {few}", all_private, guessing=prior, limit=limit),
            *_scores(
                noisy, "each step watched, all others known", all_watched, guessing=float(np.mean(unaided)), limit=limit
            ),
        ),
        summary=(
            f"Doses tell of genotypes: a plain model names {100 * plain.inside:.0f}%, of people in its data and of "
            f"others alike; that is inference, and no leak of who took part. The overfitted one names "
            f"{100 * rich.gap:.0f} points more of those in its data. With {cost} taking part adds "
            f"{100 * private.gap:+.1f} points, and {100 * watched.gap:+.1f} for one who watches each step. The private "
            f"model doses new patients within {private.dose_error:.1f} mg a week on average (plain "
            f"{plain.dose_error:.1f}, overfitted {rich.dose_error:.1f})."
        ),
        draw=lambda figure: _draw(figure, rich, plain, private, watched),
        size=(9.0, 4.0),
    )


ATTACK = Attack(
    name="inversion",
    title="Model inversion",
    question="Does a model tell a sensitive feature of the people in its training data?",
    run=inversion,
)


def _right(weights: Floats, patients: Dosed, spread: float) -> float:
    x, y = patients.features, patients.doses
    found = invert(weights, x, y, priors=PRIORS, column=GENE, values=CENTRED, spread=spread)
    return float(np.mean(found == patients.genotypes))


def _dose_error(weights: Floats, patients: Dosed) -> float:
    told = np.maximum(patients.features @ weights + MEAN_ROOT_DOSE, 0.0) ** 2
    return float(np.mean(np.abs(told - np.maximum(patients.doses + MEAN_ROOT_DOSE, 0.0) ** 2)))


def _mean(results: list[Inverted]) -> Inverted:
    return Inverted.mean(*zip(*((each.inside, each.outside, each.dose_error) for each in results), strict=True))


def _scores(
    release: ReleaseKind,
    model: str,
    rounds: list[Inverted],
    *,
    guessing: float,
    limit: str = "",
    published: Published | None = None,
) -> tuple[Score, Score]:
    """How many genotypes are named, and how many of them only because their owners took part."""
    result, gaps = _mean(rounds), [each.gap for each in rounds]
    without = f"{100 * result.outside:.1f}% with a model made without them"
    # rounds have patients of their own, so their gaps are independent
    error = 2 * float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else 1.0
    chance = f"{100 * result.gap:+.1f} points, ±{100 * error:.1f} by chance"
    return (
        Score(
            release=release,
            what=f"participants' genotypes named: {model}",
            value=result.inside,
            guessing=guessing,
            detail=without,
        ),
        Score(
            release=release,
            what=f"… because they took part: {model}",
            value=max(0.0, result.gap),
            published=published,
            detail=f"{chance}; {limit}" if limit else chance,
        ),
    )


def _draw(figure: Figure, rich: Inverted, plain: Inverted, private: Inverted, watched: Inverted) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    rows = (
        ("overfitted", rich, EXACT),
        ("plain", plain, EXACT),
        ("private", private, PRIVATE),
        ("private,\nsteps watched", watched, PRIVATE),
    )
    for place, (_, result, colour) in enumerate(rows):
        pair = (100 * result.inside, 100 * result.outside)
        left.bar((place - 0.18, place + 0.18), pair, width=0.34, color=(colour, FAINT))
        for offset, value in zip((-0.18, 0.18), pair, strict=True):
            left.text(place + offset, value + 1, f"{value:.0f}", ha="center", fontsize=8)
    left.axhline(100 * float(PRIORS.max()), color=LINE, linestyle=":", label="the commonest genotype for everybody")
    left.set_xticks(range(len(rows)), [name for name, _, _ in rows])
    left.set_ylim(0, 100)
    left.set_ylabel("genotypes named rightly (%)")
    left.set_title("Model made with them, and without (grey)")
    left.grid(visible=False, axis="x")
    for place, (_, result, colour) in enumerate(rows[:3]):
        right.bar(place, result.dose_error, width=0.5, color=colour)
        right.text(place, result.dose_error + 0.3, f"{result.dose_error:.1f}", ha="center", fontsize=8)
    right.set_xticks(range(3), [name for name, _, _ in rows[:3]])
    right.set_ylim(0, 1.15 * max(result.dose_error for _, result, _ in rows[:3]))
    right.set_ylabel("mean error of the dose (mg a week)")
    right.set_title("New patients")
    right.grid(visible=False, axis="x")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", fontsize=8)
