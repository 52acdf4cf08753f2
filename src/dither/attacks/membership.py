"""Membership inference on a trained model: was this person's record in the training data?

Shokri et al. (2017, IEEE S&P) posed the question and answered it with shadow models. Yeom et al. (2018, IEEE CSF) need
only the loss of the model on the record: below a threshold, a member. Carlini et al. (2022, IEEE S&P) train shadow
models with and without the record and test which of both laws the model's confidence follows (LiRA). They count members
found at few false alarms, and report at 0.1%: 8.4% on CIFAR-10 and 27.6% on CIFAR-100 for LiRA, 0.0% on both for the
loss threshold, whose balanced accuracy is 59.4% and 78.0% (their Table I).

Ours differs from theirs: a logistic model over 500 random features of 20 synthetic columns, about 200 people in each
training set, one label in ten wrong. It learns its training data by heart; its size was chosen such that LiRA finds
about as many members as on CIFAR-10.

The private twin is trained by noisy gradient descent; attackers train their shadow models with the same noise. The
strongest one knows all other records and watches every step, which is what differential privacy allows for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dither.attacks.base import Attack, Bits, Outcome, Published, ReleaseKind, Score, percent
from dither.attacks.detection import RATES, best_accuracy, detected, detection_error, log_normal, most_detected
from dither.attacks.training import NoisyDescent, Objective, fitted, watched_ratio
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import Floats
from dither.numeric import Number, positive_int
from dither.pictures import EXACT, FAINT, LINE, PRIVATE
from dither.privacy import Guarantee
from dither.progress import Watch, part_of, unwatched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS, FEATURES = 20, 500
# The classes are this many standard deviations apart, and so many labels are wrong.
SEPARATION, WRONG = 3.0, 0.1
FALSE_ALARMS = 0.001
FEWEST_SHADOWS, LEAST_SHADOWS = 8, 3
STEPS, RATE = 300, 0.2
NOISY_STEPS, NOISY_RATE = 10, 0.04
LIRA = Published("8.4% (CIFAR-10), 27.6% (CIFAR-100)", "Carlini et al. 2022, Table I")
THRESHOLD = Published("0.0% on both", "Carlini et al. 2022, Table I")


class Finder(Enum):
    """Who looks for members."""

    THRESHOLD = "loss threshold"
    SHADOWS = "shadow models"
    WATCHING = "watching each step, all others known"


# ---------------------------------------------------------------------- the attackers


def confidence(weights: Floats, features: Floats, labels: Floats) -> Floats:
    """The logit of a model's probability of the right label, for each model and each record.

    ln(p/(1 − p)), which for a logistic model is y·⟨w, x⟩; its loss falls with it, so that a threshold on it is a
    threshold on the loss (Yeom et al. 2018).
    """
    return np.asarray((weights @ features.T) * labels, dtype=np.float64)


def shadow_ratio(confidences: Floats, members: Bits) -> Floats:
    """LiRA: the log likelihood ratio of membership for each model and each record, all other models being the shadows.

    ``confidences[k, i]`` is what model k says about record i and ``members[k, i]`` whether it was trained on it. For
    each record two normal laws are fitted, to the shadows that had it and to those that hadn't.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> members = rng.random((40, 30)) < 0.5
        >>> ratio = shadow_ratio(rng.normal(size=(40, 30)) + 3 * members, members)
        >>> bool(ratio[members].mean() > 2 > -2 > ratio[~members].mean())
        True
    """
    if confidences.shape != members.shape or confidences.ndim != 2:
        raise InvalidData("confidences and members need one row for each model and one column for each record")
    if len(confidences) < FEWEST_SHADOWS:
        raise InvalidParameter(f"at least {FEWEST_SHADOWS} models are needed to fit their laws; got {len(confidences)}")
    inside = _left_out_law(confidences, members)
    outside = _left_out_law(confidences, ~members)
    return log_normal(confidences, *inside) - log_normal(confidences, *outside)


def _left_out_law(values: Floats, chosen: Bits) -> tuple[Floats, Floats]:
    """Mean and variance of the chosen values of each column, without the row in question.

    The variance of a column is that of few shadows: it is drawn towards the mean over all columns, as if four more
    shadows had shown that.
    """
    count = chosen.sum(axis=0) - chosen
    total = (values * chosen).sum(axis=0) - values * chosen
    squares = (values**2 * chosen).sum(axis=0) - values**2 * chosen
    if count.min() < 2:
        raise InvalidData("each record needs at least two other models with it and two without: train more models")
    mean = total / count
    variance = np.maximum(squares - count * mean**2, 0.0) / (count - 1)
    typical = variance.mean(axis=1, keepdims=True)
    return mean, (variance * count + 4 * typical) / (count + 4) + 1e-12


# ---------------------------------------------------------------------- people, features, models


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records of a pool of people and of people for testing, as features of length 1 with labels −1 and 1.

    ``members[k, i]``: whether person i of the pool is in the training data of model k, each with probability ½.
    """

    features: Floats
    labels: Floats
    test_features: Floats
    test_labels: Floats
    members: Bits


def make_world(*, seed: int, pool: int, models: int, tested: int = 2000) -> Records:
    """Two classes in twenty columns that differ in one, one label in ten wrong, and random features of that."""
    for value, name in ((pool, "pool"), (models, "models"), (tested, "tested")):
        positive_int(value, name)
    if models < FEWEST_SHADOWS:
        raise InvalidParameter(f"at least {FEWEST_SHADOWS} models are needed to fit their laws; got {models}")
    rng = np.random.default_rng(seed)
    directions, shifts = rng.normal(size=(COLUMNS, FEATURES)) / 4, rng.normal(size=FEATURES)

    def people(count: int) -> tuple[Floats, Floats]:
        truth = np.where(rng.random(count) < 0.5, 1.0, -1.0)
        columns = rng.normal(size=(count, COLUMNS))
        columns[:, 0] += truth * SEPARATION / 2
        made = np.tanh(columns @ directions + shifts)
        labels = np.where(rng.random(count) < WRONG, -truth, truth)
        return made / np.linalg.norm(made, axis=1, keepdims=True), labels

    features, labels = people(pool)
    test_features, test_labels = people(tested)
    members = rng.random((models, pool)) < 0.5
    # shadows of both kinds for everybody: with few models chance may leave somebody without
    while (few := (members.sum(axis=0) < LEAST_SHADOWS) | ((~members).sum(axis=0) < LEAST_SHADOWS)).any():
        members[:, few] = rng.random((models, int(few.sum()))) < 0.5
    return Records(
        features=features, labels=labels, test_features=test_features, test_labels=test_labels, members=members
    )


def noisy_plan(guarantee: Guarantee) -> NoisyDescent:
    """How the private twin is trained: rows of length 1 have logistic gradients no longer, so nothing is cut off."""
    return NoisyDescent.calibrated(
        guarantee, objective=Objective.LOGISTIC, steps=NOISY_STEPS, clip=1.0, rate=NOISY_RATE
    )


def train_exactly(world: Records, watch: Watch = unwatched) -> Floats:
    """The weights of an overfitted model for each row of ``world.members``."""
    models = []
    for done, chosen in enumerate(world.members):
        watch(done / len(world.members), "training models exactly")
        rows, labels = world.features[chosen], world.labels[chosen]
        models.append(fitted(rows, labels, objective=Objective.LOGISTIC, steps=STEPS, rate=RATE))
    return np.array(models)


def train_noisily(world: Records, plan: NoisyDescent, watch: Watch = unwatched) -> tuple[Floats, Floats]:
    """The weights of a private model for each row, and what whoever watched its training thinks of everybody."""
    models, watched = [], []
    for done, chosen in enumerate(world.members):
        watch(done / len(world.members), "training models with noise")
        trained = plan.train(world.features[chosen], world.labels[chosen])
        models.append(trained.weights)
        watched.append(watched_ratio(plan, trained, world.features, world.labels, chosen))
    return np.array(models), np.array(watched)


# ---------------------------------------------------------------------- both trainers under attack


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerScores:
    """How one trainer stands up to the attackers, and how good its models are."""

    scores: dict[Finder, Floats]
    members: Bits
    accuracy: float
    training_accuracy: float

    def at(self, attacker: Finder, false_alarms: npt.ArrayLike) -> Floats:
        """The share of members that this attacker finds."""
        scores = self.scores[attacker]
        return detected(scores[self.members], scores[~self.members], false_alarms)

    def balanced(self, attacker: Finder) -> float:
        """The share of right answers about members and others, equally many."""
        scores = self.scores[attacker]
        return best_accuracy(scores[self.members], scores[~self.members])


def measure(world: Records, weights: Floats, *, watched: Floats | None = None) -> TrainerScores:
    """Attack every model in turn, the others being its shadows."""
    told = confidence(weights, world.features, world.labels)
    scores = {Finder.THRESHOLD: told, Finder.SHADOWS: shadow_ratio(told, world.members)}
    if watched is not None:
        scores[Finder.WATCHING] = watched
    right = confidence(weights, world.test_features, world.test_labels) > 0
    return TrainerScores(
        scores=scores,
        members=world.members,
        accuracy=float(right.mean()),
        training_accuracy=float((told > 0)[world.members].mean()),
    )


def membership(
    *,
    seed: int = 0,
    watch: Watch = unwatched,
    pool: int = 400,
    models: int = 64,
    epsilon: Number = 1,
    delta: Number = "1e-5",
) -> Outcome:
    """Find the training data of an overfitted classifier, and of its private twin.

    Args:
        seed: Makes the data; noise is always fresh.
        watch: Called with the share that is done and a few words; it may raise to stop.
        pool: How many people may be in the training data, each with probability ½.
        models: How many are trained; each is attacked with all others as shadow models.
        epsilon: Of each private model.
        delta: Of each private model.
    """
    guarantee = Guarantee(epsilon=epsilon, delta=delta)
    world = make_world(seed=seed, pool=pool, models=models)
    plan = noisy_plan(guarantee)
    cost = f"ε = {plan.loss().epsilon(guarantee.delta):.3g}, δ = {float(guarantee.delta):g}"
    exact = measure(world, train_exactly(world, part_of(watch, 0.0, 0.3)))
    weights, watched = train_noisily(world, plan, part_of(watch, 0.3, 0.95))
    private = measure(world, weights, watched=watched)
    watch(1.0, "done")
    most = f"{cost}; on average nobody finds more than {100 * float(most_detected(FALSE_ALARMS, guarantee)):.2f}%"
    what = f"members found at {100 * FALSE_ALARMS:g}% false alarms"

    def score(release: ReleaseKind, attacker: Finder, detail: str, published: Published | None = None) -> Score:
        measured = exact if release is ReleaseKind.UNPROTECTED else private
        share = float(measured.at(attacker, FALSE_ALARMS))
        more = f"{100 * float(measured.at(attacker, 0.01)):.1f}% at 1%, balanced accuracy "
        more += f"{100 * measured.balanced(attacker):.1f}%"
        if release is ReleaseKind.PRIVATE:
            inside = int(measured.members.sum())
            error = detection_error(share, FALSE_ALARMS, members=inside, others=measured.members.size - inside)
            more = f"±{100 * error:.2f}% by chance, {more}"
        return Score(
            release=release,
            what=f"{what}, {attacker.value}",
            value=share,
            guessing=FALSE_ALARMS,
            published=published,
            detail=f"{more}; {detail}" if detail else more,
        )

    quality = f"accuracy on new people {100 * exact.accuracy:.1f}%"
    price = f"accuracy on new people {100 * private.accuracy:.1f}%"
    return Outcome(
        attack="membership",
        scores=(
            score(ReleaseKind.UNPROTECTED, Finder.SHADOWS, quality, LIRA),
            score(ReleaseKind.UNPROTECTED, Finder.THRESHOLD, "", THRESHOLD),
            score(ReleaseKind.PRIVATE, Finder.SHADOWS, f"{price}; {most}"),
            score(ReleaseKind.PRIVATE, Finder.THRESHOLD, ""),
            score(ReleaseKind.PRIVATE, Finder.WATCHING, most),
        ),
        summary=(
            f"The overfitted model betrays {100 * float(exact.at(Finder.SHADOWS, FALSE_ALARMS)):.0f}% of its members "
            f"at one false alarm in a thousand, and is right about {100 * exact.accuracy:.1f}% of new people. Trained "
            f"with {cost}, its twin is right about {100 * private.accuracy:.1f}%; an attacker who knows all other "
            f"records and watches each step finds {percent(float(private.at(Finder.WATCHING, FALSE_ALARMS)))} of its "
            f"members, and guessing finds {percent(FALSE_ALARMS)}."
        ),
        draw=lambda figure: _draw(figure, exact, private, guarantee),
        size=(9.0, 4.0),
    )


ATTACK = Attack(
    name="membership",
    title="Membership inference on a trained model",
    question="Does a trained model tell whose records it was trained on?",
    run=membership,
)


def _draw(figure: Figure, exact: TrainerScores, private: TrainerScores, guarantee: Guarantee) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.plot(RATES, exact.at(Finder.SHADOWS, RATES), color=EXACT, label="exact, shadow models")
    left.plot(RATES, exact.at(Finder.THRESHOLD, RATES), color=EXACT, linestyle="--", label="exact, loss threshold")
    bound = most_detected(RATES, guarantee)
    left.plot(RATES, bound, color=LINE, label=f"most that ε = {float(guarantee.epsilon):g} allows")
    left.plot(
        RATES, private.at(Finder.WATCHING, RATES), color=PRIVATE, linestyle="--", label="private, every step watched"
    )
    left.plot(RATES, private.at(Finder.SHADOWS, RATES), color=PRIVATE, label="private, shadow models")
    left.plot(RATES, RATES, color=FAINT, linestyle=":", label="guessing")
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlim(1e-3, 1)
    left.set_ylim(5e-4, 1.1)
    left.set_xlabel("false alarms among others (share)")
    left.set_ylabel("members found (share)")
    left.set_title("Who was in the training data?")
    for place, (measured, colour) in enumerate(((exact, EXACT), (private, PRIVATE))):
        pair = (100 * measured.training_accuracy, 100 * measured.accuracy)
        right.bar((place - 0.18, place + 0.18), pair, width=0.34, color=(FAINT, colour))
        for offset, value in zip((-0.18, 0.18), pair, strict=True):
            right.text(place + offset, value + 1, f"{value:.0f}", ha="center", fontsize=8)
    right.set_xticks((0, 1), ("exact", "private"))
    right.set_ylim(0, 108)
    right.set_ylabel("right labels (%)")
    right.set_title("Training data (grey), new people")
    right.grid(visible=False, axis="x")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
