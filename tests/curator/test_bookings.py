"""Computations are booked on their own sums, or from their exact curve: what each closes is said before it is paid.

The truth is computed here again, from densities and plain convolution, and bracketed: losses of one step are rounded
down and up to a grid, and both laws are composed.
"""

import dataclasses
import json
import math
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from dither import DiscreteGaussian, DiscreteLaplace, Gaussian, Sensitivity, poisson
from dither.curator import Booking, ComputationQuote, Curator
from dither.curator.price.pricing import Pricing
from dither.errors import IncompatibleLosses, InvalidParameter, OutOfBudget, Refused
from dither.ledger import Account, Amount, Currency
from dither.ledger.amount import ZCDP_SUMS
from dither.privacy import ApproximateLoss, PrivacyLoss, PureLoss, ZcdpLoss
from dither.privacy.renyi import epsilon_of_order, pure_renyi
from dither.privacy.zcdp import zcdp_epsilon
from support.sizes import at_night

ONE = Sensitivity.l2(1)
RATE, SIGMA, STEPS = Fraction(1, 100), 1, 1000
# the training run of a guide: ε = 2.12 at 1e-6, and a ρ of 500
TRAINING = STEPS * poisson(Gaussian(SIGMA).loss(ONE), RATE)
DELTA = Fraction(1, 10**6)
POLICY = {"delta": "1e-5", "budget": "10", "most": "5", "more": "delta_per_query = 1e-6"}


@dataclasses.dataclass
class Stated:
    """A computation that states this loss, and does nothing."""

    stated: object = TRAINING
    name: str = "a training run"
    table: str = "orders"
    columns: tuple = ("pieces",)
    rows: int = 1
    runs: int = 0

    def loss(self):
        return self.stated

    def key(self):
        return self.name

    def release(self, table):
        self.runs += 1
        return {"run": self.runs}


def spent(made, *path):
    return made.ledger.balance(Account(path or ("shop",))).spent


# ---------------------------------------------------------------- the truth


@cache
def truth(steps, *, added, up, grid=2e-5, reach=20.0):
    """(losses, chances) of so many steps of Poisson-sampled Gaussian noise, the losses of one rounded up or down.

    One unit moves a sum from N(0, 1) to (1 − q)·N(0, 1) + q·N(1, 1), and L is the logarithm of their ratio.
    """
    q, edges = float(RATE), np.arange(-round(reach / grid), round(reach / grid) + 1) * grid

    def below(loss):
        """The chance that the loss of one step is at most this, under the law that the output came from."""
        ratio = np.exp(loss if not added else -loss)  # P/Q = 1 − q + q·e^{x − 1/2}
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.where(ratio > 1 - q, np.log(np.maximum((ratio - 1 + q) / q, 0)) + 0.5, -np.inf)
        if added:
            return 1 - ndtr(x)
        return (1 - q) * ndtr(x) + q * ndtr(x - 1)

    masses = np.diff(below(edges))
    law = np.zeros(edges.size)
    law[1 if up else 0 :][: masses.size] = masses
    size = 1 << (2 * edges.size).bit_length()
    one = np.zeros(size)
    one[(np.arange(edges.size) - edges.size // 2) % size] = law
    many = np.fft.irfft(np.fft.rfft(one) ** steps, size)
    losses = np.concatenate([np.arange(size // 2), np.arange(-size // 2, 0)]) * grid
    return losses, np.maximum(many, 0.0)


def true_delta(epsilon, steps=STEPS, *, up=False):
    found = []
    for added in (False, True):
        losses, chances = truth(steps, added=added, up=up)
        over = losses > epsilon
        found.append(float(chances[over] @ -np.expm1(epsilon - losses[over])))
    return max(found)


def test_the_curve_is_that_of_an_independent_evaluation():
    """Booked is no less than the truth, and no more than a hundredth above it."""
    made = Booked.of(TRAINING, DELTA)
    assert 2.12 < made.epsilon < 2.13
    assert TRAINING.zcdp() == 500
    assert true_delta(made.epsilon) <= DELTA
    assert true_delta(made.epsilon * 0.99) > DELTA
    assert true_delta(made.epsilon * 1.01, up=True) < DELTA


@dataclasses.dataclass
class Booked:
    """A booking as the ledger would have it."""

    epsilon: float
    amount: Amount

    @classmethod
    def of(cls, loss, delta):
        epsilon = math.ceil(Fraction(loss.epsilon(delta)) * 10**6) / 10**6
        booked = ApproximateLoss(str(epsilon), delta)
        return cls(epsilon, Amount.of(booked, Currency.ZCDP, ZCDP_SUMS))


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=at_night), 3])
def test_sums_of_bookings_are_never_below_the_truth_of_the_composition(times):
    """Whichever sum is read, at any δ: what it says of all of them holds for the composed law."""
    total = times * Booked.of(TRAINING, DELTA).amount
    given = total.delta / 10**18
    rho, epsilon, *orders = (units / 10**12 for units in (total.main, *total.others))
    assert true_delta(epsilon, times * STEPS) <= given
    for share in (1e-8, 1e-6, 1e-4):
        assert true_delta(zcdp_epsilon(rho, share), times * STEPS) <= given + share
        for one, divergence in zip(ZCDP_SUMS[2:], orders, strict=True):
            assert true_delta(epsilon_of_order(divergence, one.order, share), times * STEPS) <= given + share


def test_what_is_promised_so_far_holds_for_the_composed_law(opened):
    """Two runs on their curves, or on their orders: the (ε, δ) that is told is no less than the truth."""
    for delta in (DELTA, 0):
        made = opened(**POLICY)
        for place in range(2):
            made.curator.run(Stated(name=f"run {place}"), delta=delta)
        promised = made.curator.guarantee()
        assert true_delta(float(promised.epsilon), 2 * STEPS) <= promised.delta
        assert true_delta(float(promised.epsilon) / 2, 2 * STEPS) > promised.delta


def test_its_own_orders_are_never_below_the_truth_either():
    own = Amount.of(TRAINING, Currency.ZCDP, ZCDP_SUMS)
    for one, units in zip(ZCDP_SUMS[2:], own.others[1:], strict=True):
        assert true_delta(epsilon_of_order(units / 10**12, one.order, 1e-6)) <= 1e-6
    # a mutant that books a third of them says less than the truth
    third = zip(ZCDP_SUMS[2:], own.others[1:], strict=True)
    assert true_delta(min(epsilon_of_order(units / 3e12, one.order, 1e-6) for one, units in third)) > 1e-6


# ---------------------------------------------------------------- one decomposition


def one_decomposition(amount, delta):
    """Whether the sums are those of what loses ε, beside this δ: of randomised response."""
    if amount.delta != delta * 10**18 or amount.main is None or amount.others[0] is None:
        return False
    epsilon = amount.others[0] / 10**12
    near = [abs(amount.main / 10**12 - epsilon * math.tanh(epsilon / 2)) < 1e-9]
    for one, units in zip(ZCDP_SUMS[2:], amount.others[1:], strict=True):
        near.append(units is not None and abs(units / 10**12 - pure_renyi(epsilon, one.order)) < 1e-9)
    return all(near)


def test_all_sums_are_those_of_one_decomposition(opened):
    made = opened(**POLICY)
    made.curator.run(Stated(), delta=DELTA)
    assert one_decomposition(spent(made), DELTA)
    assert spent(made).others[0] == math.ceil(Fraction(TRAINING.epsilon(DELTA)) * 10**6) * 10**6


def test_mixed_decompositions_are_caught():
    """ε of the curve with ρ or an order of the whole; ε without the δ that it holds at; ε at another δ."""
    curve, whole = Booked.of(TRAINING, DELTA).amount, Amount.of(TRAINING, Currency.ZCDP, ZCDP_SUMS)
    assert one_decomposition(curve, DELTA)
    mixed = [
        Amount(whole.main, curve.delta, curve.others),
        Amount(curve.main, 0, curve.others),
        Amount(curve.main, curve.delta, (curve.others[0], *whole.others[1:])),
        Amount(curve.main, curve.delta, (Booked.of(TRAINING, DELTA / 100).amount.others[0], *curve.others[1:])),
    ]
    assert not any(one_decomposition(amount, DELTA) for amount in mixed)


# ---------------------------------------------------------------- what is said before, and what happens then


def test_both_bookings_are_told_with_what_each_closes(opened):
    made = opened(**POLICY)
    quote = made.curator.price_run(Stated(), analyst="ana")
    assert isinstance(quote, ComputationQuote)
    own, curve = quote.bookings
    assert (own.delta, curve.delta) == (0, 1e-6)
    assert quote.booking is curve
    assert quote.epsilon == TRAINING.epsilon(DELTA)
    assert (own.epsilon, own.rho, own.given) == (None, 500, 0)
    assert (own.closes, own.fills[0]) == (("ε",), "ρ")
    assert own.open == ("D(4)", "D(6)", "D(8)")
    assert (curve.closes, curve.fills) == ((), ())
    assert curve.open[:3] == ("ρ", "ε", "D(4)")
    assert (curve.epsilon, curve.given) == (2.124718, 1e-6)
    assert curve.rho == pytest.approx(2.124718 * math.tanh(1.062359))
    assert own.fits
    assert curve.fits
    assert curve.more == 4  # 10 / 2.12, and five times δ
    text = str(quote)
    assert "ε = 2.125 at δ = 1e-06" in text
    assert "closes the sum of ε for good, for you and for everybody together" in text
    assert "takes more than all of the sums of ρ and Rényi divergences of order 11, 16, 24, 48, 96" in text
    assert made.ledger.balance(Account(("shop",))) is None
    assert made.engine.runs == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        quote.epsilon = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.rho = 0.0


LOSSES = {
    "a training run": TRAINING,
    "Gaussian noise": Gaussian(10).loss(ONE),
    "Laplace noise": DiscreteLaplace(4).loss(Sensitivity.l1(1)),
    "a few steps": 3 * poisson(Gaussian(2).loss(ONE), RATE),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_said_is_what_happens(opened, name, place):
    """Each booking, taken: the ledger adds what was told, closes what was told, and what stays open takes more."""
    made = opened(**POLICY)
    booking = made.curator.price_run(Stated(LOSSES[name]), analyst="ana").bookings[place]
    result = made.curator.run(Stated(LOSSES[name]), analyst="ana", delta=booking.delta)
    for account in (("shop",), ("shop", "ana")):
        balance = made.ledger.balance(Account(account))
        total = balance.spent
        parts = dict(zip((one.symbol for one in ZCDP_SUMS), (total.main, *total.others), strict=True))
        most = dict(zip(parts, (balance.limit.main, *balance.limit.others), strict=True))
        assert parts["ε"] == (None if booking.epsilon is None else round(booking.epsilon * 10**12))
        assert parts["ρ"] == (None if booking.rho is None else round(booking.rho * 10**12))
        assert total.delta == round(booking.given * 10**18)
        usable = [one for one in parts if most[one]]
        assert booking.closes == tuple(one for one in usable if parts[one] is None)
        assert booking.fills == tuple(one for one in usable if parts[one] is not None and parts[one] > most[one])
        assert booking.open == tuple(one for one in usable if parts[one] is not None and parts[one] <= most[one])
    assert booking.left == str(made.curator.budget("ana")[0])
    again = made.curator.price_run(Stated(LOSSES[name]), analyst="ana", delta=booking.delta)
    assert (again.booking.free, again.booking.fits, again.booking.share) == (True, True, 0.0)
    assert again.booking.left == again.left == booking.left
    assert made.curator.run(Stated(LOSSES[name]), analyst="ana", delta=booking.delta) == result
    assert made.engine.runs == 1
    made.curator.verify()


def test_a_sum_that_was_closed_accepts_nothing_more(opened):
    """A question of ε = 7.5 fits in 10 beside the run's 2.12 by the sum of ε, and by no other."""
    large = Stated(PureLoss("7.5"), "large")
    for booking, fits in [(0, False), (DELTA, True)]:
        made = opened(**{**POLICY, "most": "8"})
        assert ("ε" in made.curator.price_run(Stated(), delta=booking).booking.open) == fits
        made.curator.run(Stated(), delta=booking)
        told = made.curator.price_run(large).booking
        assert (told.fits, told.more) == (fits, int(fits))
        if fits:
            made.curator.run(large)
            assert spent(made).others[0] == 9_624_718_000_000
        else:
            with pytest.raises(OutOfBudget):
                made.curator.run(large)
            assert spent(made).others[0] is None


def test_how_many_more_is_what_fits(opened):
    made = opened(**POLICY)
    more = made.curator.price_run(Stated()).booking.more
    for place in range(more):
        made.curator.run(Stated(name=f"run {place}"))
    assert not made.curator.price_run(Stated(name="one more")).booking.fits
    with pytest.raises(OutOfBudget):
        made.curator.run(Stated(name="one more"))


def test_a_delta_that_is_used_up_is_told_with_what_to_do(opened):
    made = opened(**POLICY)
    small = 3 * poisson(Gaussian(8).loss(ONE), RATE)
    assert made.curator.price_run(Stated(small), delta=DELTA).booking.more == 5
    for place in range(5):
        made.curator.run(Stated(small, f"{place}"), delta=DELTA)
    with pytest.raises(OutOfBudget, match="a smaller delta, or with delta=0"):
        made.curator.run(Stated(small), delta=DELTA)
    made.curator.run(Stated(small), delta=0)


def test_what_has_neither_epsilon_nor_rho_is_booked_by_its_orders(opened):
    """A loss with Rényi divergences alone, such as that of a private search: ε and ρ are closed for good."""
    made = opened(**{**POLICY, "most": "8"})
    made.curator.run(Stated(TRAINING, "before"), delta=DELTA)
    large = Stated(PureLoss("7.5"), "large")
    assert made.curator.price_run(large).booking.fits
    quote = made.curator.price_run(Stated(ByOrders(), "search"))
    own, curve = quote.bookings
    assert quote.booking is curve
    assert own.closes[:2] == ("ρ", "ε")
    assert (own.epsilon, own.rho) == (None, None)
    assert curve.closes == ()
    made.curator.run(Stated(ByOrders(), "search"), delta=0)
    assert spent(made).main is None
    assert spent(made).others[0] is None
    assert made.curator.budget()[0].exactly.startswith("no ρ")
    assert 0 < made.curator.guarantee().epsilon < 10
    made.curator.verify()
    assert made.curator.history()[-1].epsilon_spent == made.curator.budget()[0].epsilon_spent
    with pytest.raises(OutOfBudget):
        made.curator.run(large)
    made.curator.run(Stated(ZcdpLoss("1/10000"), "small"), delta=0)
    assert spent(made).main is None
    made.curator.verify()


def test_sums_that_are_closed_stay_so_in_a_file(tmp_path, shop, policy_texts):
    (tmp_path / "shop.duckdb").write_bytes((shop / "shop.duckdb").read_bytes())
    policy = policy_texts(**POLICY).replace('name = "shop"', 'name = "shop"\nledger_head = "shop.head"')
    (tmp_path / "dither.toml").write_text(policy, encoding="utf-8")
    for name, charge in [("first", True), ("first", False), ("second", True)]:
        with Curator.open(tmp_path / "dither.toml") as curator:
            before = curator.budget("ana")[0].epsilon_spent
            curator.run(Stated(ByOrders(), name), analyst="ana", delta=0)
            assert (curator.budget("ana")[0].epsilon_spent > before) == charge
            curator.sql("SELECT COUNT(*) AS n FROM orders", epsilon="1/10", analyst="ana")
            balance = curator.ledger.balance(Account(("shop", "ana")))
            assert balance.spent.main is balance.remaining.main is balance.spent.others[0] is None
            assert curator.verify().balances == curator.ledger.balances()
            assert len(curator.answers("ana").items) == 1
            assert len(curator.records()) > 3
    # twice the search and one question, order by order
    booked = 2 * Amount.of(ByOrders(), Currency.ZCDP, ZCDP_SUMS)
    assert all(a is None or a > b for a, b in zip(balance.spent.others[1:], booked.others[1:], strict=True))


@dataclasses.dataclass(frozen=True)
class ByOrders(PrivacyLoss, kind="test_by_orders"):
    """Rényi divergences up to order 48, and nothing else."""

    adjacency: object = dataclasses.field(default=TRAINING.adjacency)

    symmetric = True
    tight = False

    def renyi(self, order):
        return 0.02 * order if order <= 48 else math.inf

    def profile(self, epsilon, direction):
        return ZcdpLoss("1/50").profile(epsilon, direction)

    def zcdp(self):
        return math.inf


def test_entries_are_read_back_in_another_process(tmp_path, shop, policy_texts):
    """The other process finds both entries, verifies the log, and answers from the record under the same names."""
    (tmp_path / "shop.duckdb").write_bytes((shop / "shop.duckdb").read_bytes())
    policy = policy_texts(**POLICY).replace('name = "shop"', 'name = "shop"\nledger_head = "shop.head"')
    (tmp_path / "dither.toml").write_text(policy, encoding="utf-8")
    program = f"""
import json, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from dither import Curator
from test_bookings import Stated, DELTA
with Curator.open({str(tmp_path / "dither.toml")!r}) as curator:
    results = [curator.run(Stated(), delta=at) for at in (None, 0, DELTA, "1e-7")]
    curator.verify()
    entries = [e.body for e in curator.ledger.entries() if e.kind.value == "reserve"]
    found = [[e["loss"]["kind"], e["amount"], e["note"].get("stated")] for e in entries]
    print(json.dumps([results, found, curator.budget()[0].exactly]))
"""
    first, second = (
        json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )
    assert first == second
    results, entries, _ = first
    assert len(results) == 4
    assert [kind for kind, _, _ in entries] == ["approximate", "composed", "approximate"]
    assert [amount["delta"] for _, amount, _ in entries] == [10**12, 0, 10**11]
    assert [PrivacyLoss.from_json(stated) == TRAINING for _, _, stated in entries if stated] == [True, True]
    assert entries[1][2] is None
    for place, delta in ((0, DELTA), (2, DELTA / 10)):
        assert one_decomposition(Amount.from_json(entries[place][1]), delta)


# ---------------------------------------------------------------- which is taken


def test_the_usual_booking_does_not_depend_on_what_others_spent(opened):
    """Whatever is spent, by oneself or by others, and even where only the other booking would fit."""
    made = opened(**POLICY)
    wanted = [(name, made.curator.price_run(Stated(loss)).booking) for name, loss in LOSSES.items()]
    usual = {name: (booking.delta, booking.key, booking.charge) for name, booking in wanted}
    assert {name: delta for name, (delta, _, _) in usual.items()} == {
        "a training run": 1e-6, "Gaussian noise": 0, "Laplace noise": 0, "a few steps": 0
    }  # fmt: skip
    for place in range(4):
        made.curator.run(Stated(name=f"others {place}"), analyst="ana" if place % 2 else "owner")
        for name, loss in LOSSES.items():
            booking = made.curator.price_run(Stated(loss)).booking
            assert (booking.delta, booking.key, booking.charge) == usual[name]
            if not booking.fits:
                with pytest.raises(OutOfBudget):
                    made.curator.run(Stated(loss))
    assert not made.curator.price_run(Stated()).booking.fits


def test_what_was_paid_for_before_keeps_its_name(opened):
    """The usual booking of what fits in a question has the key that it had, and is charged as it was."""
    made = opened(**POLICY)
    loss = LOSSES["Gaussian noise"]
    pricing = made.curator._vault.pricing
    what = ["a training run", "orders", ["pieces"], 1, loss.to_json()]
    key = pricing._named(["computation", 1, what], pricing.version)
    assert made.curator.price_run(Stated(loss)).booking.key == key
    assert isinstance(pricing, Pricing)
    made.curator.run(Stated(loss))
    assert spent(made) == Amount.of(loss, Currency.ZCDP, ZCDP_SUMS)


def test_another_booking_is_another_computation(opened):
    made = opened(**POLICY)
    made.curator.run(Stated(), delta=DELTA)
    first = spent(made)
    made.curator.run(Stated(), delta=DELTA / 10)
    assert spent(made).delta == first.delta * 11 // 10
    made.curator.run(Stated(), delta=DELTA, analyst="ana")
    assert spent(made).delta == first.delta * 11 // 10
    assert spent(made, "shop", "ana") == first
    assert made.engine.runs == 2


# ---------------------------------------------------------------- what one question may cost


def test_a_cap_of_one_question_is_read_off_the_exact_curve(opened):
    """ε = 2.1247 at 1e-6: a cap of 2.13 lets it through, which its ρ of 500 never would, and one of 2.12 doesn't."""
    reading = Fraction(TRAINING.epsilon(DELTA))
    for most, allowed in [("2.13", True), ("2.12", False)]:
        assert (reading <= Fraction(most)) == allowed
        made = opened(**{**POLICY, "most": most})
        for delta in (None, 0, DELTA):
            if allowed:
                made.curator.run(Stated(), delta=delta)
                continue
            for ask in (made.curator.run, made.curator.price_run):
                with pytest.raises(Refused, match="by its curve") as refused:
                    ask(Stated(), delta=delta)
                assert refused.value.code == "epsilon_too_large"
                assert refused.value.hint
    assert made.ledger.balance(Account(("shop",))) is None


def test_the_least_proven_reading_decides(opened):
    """Gaussian noise whose ρ reads as a little more than the cap, and whose own curve doesn't."""
    for scale in (8, 9):
        loss = Gaussian(scale).loss(ONE)
        exact, by_rho = loss.epsilon(DELTA), zcdp_epsilon(loss.zcdp(), float(DELTA))
        assert exact < by_rho
        between = Fraction(str(round((exact + by_rho) / 2, 4)))
        made = opened(**{**POLICY, "most": str(float(between))})
        made.curator.run(Stated(loss), delta=0)
        assert spent(made).delta == 0
        below = opened(**{**POLICY, "most": str(round(exact - 1e-4, 5))})
        with pytest.raises(Refused):
            below.curator.run(Stated(loss), delta=0)


def test_the_price_of_approval_is_read_the_same_way(opened):
    waits = "\n[analysts.carl]\nepsilon_budget = 10\nneeds_approval_above = {}"
    for above, needed in [("2.13", False), ("2.12", True)]:
        made = opened(**{**POLICY, "more": POLICY["more"] + waits.format(above)})
        quote = made.curator.price_run(Stated(), analyst="carl")
        assert quote.needs_approval == needed
        assert ("the owner of the data must run this" in str(quote)) == needed
        if needed:
            with pytest.raises(Refused) as refused:
                made.curator.run(Stated(), analyst="carl")
            assert refused.value.code == "needs_approval"
        else:
            made.curator.run(Stated(), analyst="carl")


def test_where_the_sum_of_epsilon_is_kept_open_the_curve_is_the_way(opened):
    made = opened(**{**POLICY, "more": POLICY["more"] + '\nnoise = "laplace"'})
    noisy = Stated(Gaussian(10).loss(ONE))
    for ask in (made.curator.run, made.curator.price_run):
        with pytest.raises(Refused) as refused:
            ask(noisy)
        assert refused.value.code == "noise_not_allowed"
        assert "delta=1e-06" in refused.value.hint
    made.curator.run(noisy, delta=DELTA)
    made.curator.run(Stated())
    assert spent(made).others[0] is not None
    assert [booking.delta for booking in made.curator.price_run(Stated()).bookings] == [1e-6]


# ---------------------------------------------------------------- what is no booking


@pytest.mark.parametrize("delta", [-1, 1, "x", float("nan"), True, [1]])
def test_what_is_no_delta_is_refused(opened, delta):
    made = opened(**POLICY)
    for ask in (made.curator.run, made.curator.price_run):
        with pytest.raises(InvalidParameter, match="delta"):
            ask(Stated(), delta=delta)


@pytest.mark.parametrize(
    ("loss", "delta", "code"),
    [
        (TRAINING, "2e-6", "delta_too_large"),
        (TRAINING, "1e-18", "delta_too_small"),
        (ApproximateLoss(1, "1e-7"), "1e-8", "no_epsilon"),
    ],
)
def test_a_delta_that_does_not_do_is_refused_free(opened, loss, delta, code):
    made = opened(**POLICY)
    for ask in (made.curator.run, made.curator.price_run):
        with pytest.raises(Refused) as refused:
            ask(Stated(loss), delta=delta)
        assert (refused.value.code, bool(refused.value.hint)) == (code, True)
    assert made.engine.runs == 0
    assert made.ledger.balance(Account(("shop",))) is None


def test_a_budget_without_delta_has_one_booking(opened):
    made = opened(delta="0")
    quote = made.curator.price_run(Stated(PureLoss(1)))
    assert quote.bookings == (quote.booking,)
    assert (quote.epsilon, quote.delta, quote.booking.epsilon, quote.booking.rho) == (1, 0, 1, None)
    assert (quote.booking.closes, quote.booking.open) == ((), ("ε",))
    assert quote.booking.charge == "ε = 1"
    with pytest.raises(Refused, match="no δ"):
        made.curator.run(Stated(PureLoss(1)), delta=DELTA)
    for ask in (made.curator.run, made.curator.price_run):
        with pytest.raises(IncompatibleLosses, match="pure ε"):
            ask(Stated(DiscreteGaussian(10).loss(ONE)))


def test_a_booking_is_told_of_the_analysts_own_account(opened):
    """Whatever others spent, an analyst's quote is the same; the owner's is of the dataset."""
    made = opened(**POLICY)
    before = made.curator.price_run(Stated(), analyst="ana")
    for place in range(3):
        made.curator.run(Stated(name=f"of the owner {place}"))
    assert made.curator.price_run(Stated(), analyst="ana") == before
    own = made.curator.price_run(Stated())
    assert (own.booking.more, before.booking.more) == (1, 4)
    assert isinstance(own.booking, Booking)
    with pytest.raises(Refused) as refused:
        made.curator.price_run(Stated(), analyst="eve")
    assert refused.value.code == "unknown_analyst"
