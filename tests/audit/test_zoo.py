"""The zoo: every broken mechanism is caught, every right twin is left alone, and the page about them is complete."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dither as dp
from dither.audit import zoo
from dither.audit.claims import claim_of
from dither.audit.drawing.draws import Batched
from dither.audit.result import Verdict
from dither.audit.zoo.catalogue import markdown
from dither.errors import InvalidParameter
from support.sizes import at_night, short_or_full

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "broken-mechanisms.md"
# One failure in a million for each audit: far fewer than one in ten thousand for the whole file.
CONFIDENCE = 1 - 1e-6
# No timed test: a broken one stops the audit as soon as it is caught, and this is only where the search would give up.
PATIENCE = 60.0
SHORT = short_or_full(0.12, 1.0)


def named(specimen):
    return specimen.name


def specimen_of(name):
    return next(specimen for specimen in zoo.specimens() if specimen.name == name)


@pytest.mark.parametrize("specimen", zoo.broken(), ids=named)
def test_broken_mechanisms_are_caught(specimen):
    found = zoo.audit_specimen(specimen, budget=PATIENCE, confidence=CONFIDENCE)
    assert found.verdict is Verdict.BROKEN, str(found)
    assert found.claim.loss == specimen.claim
    assert found.assumption is specimen.assuming


@pytest.mark.parametrize("specimen", zoo.right(), ids=named)
def test_right_twins_are_left_alone(specimen):
    found = zoo.audit_specimen(specimen, budget=SHORT, confidence=CONFIDENCE)
    assert found.verdict is Verdict.HELD, str(found)
    claimed = specimen.claim.epsilon(specimen.delta)
    assert 0 <= found.epsilon <= claimed


def largest_excess(claim, p, q):
    """By how much the best of some events, given by probabilities under both inputs, exceeds what the claim allows."""
    allowed = claim_of(claim)
    return max(float((a - allowed.largest(b)).max()) for a, b in ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p)))


@pytest.mark.parametrize("name", ["laplace", "laplace-at-most-twice", "geometric", "gaussian"])
def test_claims_of_noise_are_as_strong_as_they_may_be(name):
    """By the closed form of the noise, some half line has just the probability that the claim allows, and none more."""
    specimen = specimen_of(name)
    cuts = np.linspace(-8.0, 9.0, 1701)
    p, q = (specimen.mechanism.law(x).cdf(cuts) for x in specimen.pairs[0])
    assert -1e-5 < largest_excess(specimen.claim, p, q) < 1e-9


def test_the_exact_calibration_uses_all_of_its_delta():
    specimen = specimen_of("gaussian-calibrated-exactly")
    cuts = np.linspace(-6.0, 1.0, 70001)
    p, q = (specimen.mechanism.law(x).cdf(cuts) for x in specimen.pairs[0])
    assert -1e-9 < (p - math.exp(12) * q - 1e-5).max() < 1e-12


@pytest.mark.parametrize(
    ("name", "mechanism", "pair"),
    [
        ("fair-coins", dp.RandomizedResponse(lie="1/4"), (True, False)),
        ("kary-response", dp.KaryResponse.for_epsilon(10, epsilon=1), (0, 1)),
        ("participation-response", dp.ParticipationResponse(keep="3/5"), (1, 2)),
        ("exponential", dp.Exponential(scale=2), ([1.0, 0.0], [0.0, 1.0])),
        ("exponential", dp.Exponential(scale=2), ([1.0] + [0.0] * 9, [0.0] + [1.0] * 9)),
        ("selected-keys", dp.PartitionSelection(epsilon=1, delta="1/1000"), (5, 4)),
        ("selected-keys", dp.PartitionSelection(epsilon=1, delta="1/1000"), (1, 0)),
    ],
)
def test_claims_of_choices_are_as_strong_as_they_may_be(name, mechanism, pair):
    p, q = (mechanism.law(x).probabilities for x in pair)
    assert -1e-5 < largest_excess(specimen_of(name).claim, p, q) < 1e-9


@pytest.mark.parametrize(("name", "short"), [("laplace-20-percent-short", 0.2), ("laplace-2-percent-short", 0.02)])
def test_how_short_a_scale_is(name, short):
    """Half of all outputs lie beyond the answer, and a Laplace law's mean distance is its scale."""
    specimen = specimen_of(name)
    noise = specimen.mechanism.draw(0.0, 400_000)
    # the standard error of the mean is a scale over √400,000; six of them
    assert abs(np.abs(noise).mean() - (1 - short)) < 6 / math.sqrt(400_000)


def test_a_right_twin_is_caught_if_it_claims_a_tenth_less():
    specimen = specimen_of("geometric")
    boasting = replace(specimen, claim=type(specimen.claim)(specimen.claim.scale * 10 / 9, 1))
    assert zoo.audit_specimen(boasting, budget=PATIENCE, confidence=CONFIDENCE).verdict is Verdict.BROKEN


# by day test_lower_bound.py says it of other mechanisms
@at_night
def test_false_alarms_are_as_rare_as_stated():
    """At 90% confidence at most one audit in ten may accuse; an auditor who compares bare frequencies does in half."""
    coins, times = specimen_of("fair-coins"), 100
    most = int(stats.binom.isf(1e-9, times, 0.1))
    alarms = sum(zoo.audit_specimen(coins, budget=0.03, confidence=0.9, workers=1).broken for _ in range(times))
    assert alarms <= most
    hasty = 0
    for _ in range(times):
        yes, no = (coins.mechanism.draw(truth, 20_000).mean() for truth in coins.pairs[0])
        hasty += yes > 3 * no or 1 - no > 3 * (1 - yes)
    assert hasty > most


def test_every_broken_one_has_a_right_twin():
    assert {s.family for s in zoo.broken()} <= {s.family for s in zoo.right()}
    assert set(zoo.broken()) | set(zoo.right()) == set(zoo.specimens())
    names = [s.name for s in zoo.specimens()]
    assert len(names) == len(set(names))
    assert len(zoo.broken()) >= 27


def test_what_the_issue_and_the_specification_ask_for_is_here():
    wanted = """laplace-20-percent-short laplace-10-percent-short laplace-2-percent-short laplace-in-floats
        laplace-with-one-seed epsilon-read-as-a-factor geometric-10-percent-short gaussian-10-percent-short
        gaussian-classical-constant one-sided-answers randomised-response-under-add-remove
        kary-response-10-percent-short exponential-without-the-two noisy-max-with-half-the-noise
        noisy-max-that-tells-the-value replace-sensitivity-under-add-remove add-remove-sensitivity-under-replace
        mean-of-a-private-number penalty-of-the-other-convention one-noise-for-two-queries keys-without-noise
        sparse-vector-3 sparse-vector-4 sparse-vector-5 sparse-vector-6 clipping-after-averaging
        sampled-step-priced-in-proportion"""
    assert {s.name for s in zoo.broken()} == set(wanted.split())


@pytest.mark.parametrize("specimen", zoo.specimens(), ids=named)
def test_every_batch_draws_anew(specimen):
    """Forked copies seed themselves at every batch; so do two batches of one process."""
    if not isinstance(specimen.mechanism, Batched):
        return
    alike = []
    for x in specimen.pairs[0]:
        first, second = (specimen.mechanism.draw(x, 200) for _ in range(2))
        assert len(first) == len(second) == 200
        alike.append(first == second if isinstance(first, list) else np.array_equal(first, second, equal_nan=True))
    # a one-sided answer is always yes for those who mean yes
    assert all(alike) == (specimen.name == "laplace-with-one-seed")
    assert specimen.mechanism.copies


def test_only_the_float_mechanism_shows_its_last_bits():
    """Whatever isn't about floating point keeps to a grid, so that its one mistake is the only one."""
    for specimen in zoo.specimens():
        if not isinstance(specimen.mechanism, Batched):
            continue
        drawn = specimen.mechanism.draw(specimen.pairs[0][0], 200)
        if isinstance(drawn, list) or drawn.dtype.kind != "f" or specimen.source.startswith("dither"):
            continue
        steps = drawn[~np.isnan(drawn)] * 2.0**20
        assert np.array_equal(steps, np.round(steps)) == (specimen.name != "laplace-in-floats"), specimen.name


def test_a_specimen_says_what_is_wrong_or_nothing():
    specimen = zoo.broken()[0]
    with pytest.raises(InvalidParameter, match="states its mistake"):
        replace(specimen, mistake="")
    with pytest.raises(InvalidParameter, match="states its mistake"):
        replace(zoo.right()[0], mistake="Nothing.")
    with pytest.raises(InvalidParameter, match="at least one pair"):
        replace(specimen, pairs=())
    with pytest.raises(InvalidParameter, match="greater than 0"):
        replace(specimen, seconds=math.nan)


def test_sentences_are_sentences():
    for specimen in zoo.specimens():
        for text in (specimen.mistake, specimen.remark):
            assert not text or (text.endswith(".") and (text[0].isupper() or text.startswith("σ"))), text
        assert "|" not in specimen.mistake + specimen.remark + specimen.source + specimen.typically


def test_the_page_shows_every_specimen():
    text = PAGE.read_text(encoding="utf-8")
    shown = "\n".join(re.findall(r"^\|.*\|$|^$(?=\n\|)", text, re.MULTILINE)).strip()
    assert shown == markdown(), "put dither.audit.zoo.catalogue.markdown() at the end of the page"
