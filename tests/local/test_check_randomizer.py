"""The conformance suite for protocols of local privacy: what is right passes, every mutant fails where it should."""

from fractions import Fraction

import numpy as np
import pytest

from dither.checks import check_randomizer
from dither.errors import ConformanceFailed, InvalidParameter
from dither.local.clients.coins import SYSTEM as COINS
from dither.local.clients.hashing import LocalHashingClient, bucket_of
from dither.local.clients.kary import KaryClient
from dither.local.clients.unary import UnaryClient
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.oracle import FrequencyAggregator, row_numbers
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.privacy import Adjacency, PureLoss
from support.sizes import short_or_full


def failed(protocol, **options):
    """The names of the checks that failed; every class here differs from what its description makes."""
    report = check_randomizer(protocol, raises=False, **{"draws": 60_000, **options})
    names = {finding.check.split(" (")[0] for finding in report.findings if not finding.passed}
    return names - {"description round trip"}


# ------------------------------------------------------------------ the right ones


@pytest.mark.parametrize(
    "protocol",
    [
        Kary(["no", "yes"], keep="3/4"),
        Unary.symmetric(["a", "b", "c"], epsilon=2),
        LocalHashing.for_epsilon(300, epsilon="1/2"),
        SubsetSelection.for_epsilon(9, epsilon=1),
        HadamardResponse.for_epsilon(70, epsilon=1),
        ProjectiveResponse.for_epsilon(8, epsilon=2),
    ],
    ids=lambda protocol: protocol.name,
)
def test_right_ones_pass(protocol):
    report = check_randomizer(protocol, draws=short_or_full(20_000, 60_000))
    assert report.passed
    assert not any("not enumerated" in finding.detail for finding in report.findings)


def test_what_cannot_be_enumerated_says_so():
    class Whole(Unary):
        reduced = None

    report = check_randomizer(Whole(40, keep="1/2", noise="1/4"), values=range(40), raises=False, draws=1000)
    (law,) = [finding for finding in report.findings if finding.check == "exact law within the loss"]
    assert law.passed
    assert "not enumerated" in law.detail


def test_inputs_are_needed():
    class Bare(Kary):
        inputs = list

    with pytest.raises(InvalidParameter, match="pass values"):
        check_randomizer(Bare(3, keep="1/2"))


def test_all_failures_are_listed():
    class Dishonest(Kary):
        def loss(self):
            return PureLoss("1/100", Adjacency.REPLACE)

    with pytest.raises(ConformanceFailed, match="FAILED exact law within the loss"):
        check_randomizer(Dishonest(3, keep="1/2"), draws=1000)


# ------------------------------------------------------------------ clients that are wrong


class WithClient(Kary):
    """k-ary response with another client."""

    made = KaryClient

    def client(self):
        return self.made(self.describe())


def test_a_lie_among_all_values():
    """Catches lies that may be the truth: exactly, and where many are drawn at once."""

    class Client(KaryClient):
        def payload(self, value, coins=COINS):
            lie = coins.below(self.domain.size)
            return bytes([self.domain.place(value) if coins.chance(self.keep) else lie])

    class Mutant(WithClient):
        made = Client

    found = failed(Mutant(3, keep="1/2"))
    assert {"exact law within the loss", "exact law within the curve", "unbiased, exactly"} <= found
    assert "many at once follow the same law" in found


def test_a_client_that_sometimes_tells_the_truth_aloud():
    class Client(KaryClient):
        def payload(self, value, coins=COINS):
            if coins.chance(Fraction(1, 1000)):
                return bytes([16 + self.domain.place(value)])
            return super().payload(value, coins)

    class Mutant(WithClient):
        made = Client

    assert {"exact law within the loss", "valid payloads are those that clients send"} <= failed(Mutant(3, keep="1/2"))


def test_payloads_of_different_lengths():
    class Client(KaryClient):
        def payload(self, value, coins=COINS):
            return super().payload(value, coins) + b"\0" * (self.domain.place(value) == 0)

    class Mutant(WithClient):
        made = Client

    assert {"valid payloads are those that clients send", "reports are read back"} <= failed(Mutant(3, keep="1/2"))


def test_a_seed_that_depends_on_the_value():
    class Client(LocalHashingClient):
        def payload(self, value, coins=COINS):
            factor, offset = coins.below(16), coins.below(16)
            while bucket_of(self.domain.place(value), factor, offset, word=4, buckets=self.buckets):
                offset = (offset + 1) % 16
            named = 0 if coins.chance(self.keep) else 1 + coins.below(self.buckets - 1)
            return bytes([factor, offset, named])

    class Mutant(LocalHashing):
        def client(self):
            return Client(self.describe())

    assert "exact law within the loss" in failed(Mutant(4, buckets=4, keep="1/2", word=4))


def test_the_whole_epsilon_for_each_of_two_bits():
    class Mutant(Unary):
        def loss(self):
            return PureLoss("1.0986123", Adjacency.REPLACE)  # ln 3, of one bit

    found = failed(Mutant(3, keep="3/4", noise="1/4"))
    assert {"exact law within the loss", "exact law within the curve"} <= found


def test_column_zero_is_not_a_value():
    """Catches a column that is off by one: exactly, and where many are drawn at once."""
    from dither.local.clients.hadamard import HadamardClient

    class Client(HadamardClient):
        def payload(self, value, coins=COINS):
            column = self.domain.place(value)
            agree, row = coins.chance(self.keep), coins.below(self.order)
            row ^= (column & -column) * (((row & column).bit_count() % 2) == agree)
            return bytes([row])

    class Mutant(HadamardResponse):
        def client(self):
            return Client(self.describe())

    found = failed(Mutant(3, keep="3/4"))
    assert {"unbiased, exactly", "many at once follow the same law", "client and simulation agree"} <= found


def test_a_client_with_other_coins_at_full_size():
    class Client(UnaryClient):
        def __init__(self, description):
            super().__init__(description)
            self.keep += Fraction(1, 5)

    class Mutant(Unary):
        def client(self):
            return Client(self.describe())

    assert "client and simulation agree" in failed(Mutant(40, keep="1/2", noise="1/4"))


# ------------------------------------------------------------------ simulations that are wrong


def test_a_coin_that_is_two_per_cent_off():
    """Catches a coin of 0.49 for 1/2."""

    class Mutant(Kary):
        def randomize_places(self, truths, source):
            return Kary(self.domain, self.keep * Fraction(98, 100)).randomize_places(truths, source)

    assert "many at once follow the same law" in failed(Mutant(3, keep="1/2"), draws=1_200_000)


def test_a_subset_that_prefers_the_first_values():
    class Mutant(SubsetSelection):
        def randomize_places(self, truths, source):
            rows = SubsetSelection.randomize_places(self, truths, source).copy()
            # half of those who name just 1 and 3 say 1 and 2 instead
            rows[np.flatnonzero((rows[:, 0] == 0b01010) & (np.arange(truths.size) % 2 == 0))] = 0b00110
            return rows

    assert "many at once follow the same law" in failed(Mutant(5, subset=2, keep="3/5"))


def test_a_plane_with_the_zero_vector():
    """Catches one row in prime^(dimension − 1) that is zero."""

    class Mutant(ProjectiveResponse):
        def randomize_places(self, truths, source):
            rows = ProjectiveResponse.randomize_places(self, truths, source).copy()
            rows[:: self.prime ** (self.dimension - 1)] = 0
            return rows

    assert "many at once follow the same law" in failed(Mutant(7, prime=5, keep="1/2"))


def test_reports_that_are_sent_twice():
    """Catches one report in ten that repeats the one before."""

    class Mutant(Kary):
        def randomize_places(self, truths, source):
            rows = Kary.randomize_places(self, truths, source).copy()
            again = np.flatnonzero(np.arange(truths.size) % 10 == 1)
            rows[again] = rows[again - 1]
            return rows

    assert "every report is fresh" in failed(Mutant(200, keep="1/10"))


def test_noise_that_is_the_same_every_time():
    from dither.entropy import InsecureSeededSource

    class Mutant(Kary):
        def randomize_places(self, truths, source):
            return Kary.randomize_places(self, truths, InsecureSeededSource(1))

    assert "every report is fresh" in failed(Mutant(3, keep="1/2"))


# ------------------------------------------------------------------ claims that are wrong


def test_a_curve_that_is_too_low():
    class Mutant(Unary):
        @property
        def weight(self):
            return self.noise * (1 - self.keep) * Fraction(99, 100)

    assert failed(Mutant(3, keep="1/2", noise="1/4")) == {"exact law within the curve"}


def test_collisions_taken_for_one_in_g():
    class Mutant(LocalHashing):
        @property
        def collision(self):
            return Fraction(1, self.buckets)

    found = failed(Mutant(4, buckets=3, keep="1/2", word=4))
    assert "unbiased, exactly" in found


def test_a_miss_one_per_cent_off():
    class Mutant(Kary):
        @property
        def miss(self):
            return (1 - self.keep) / (self.size - 1) * Fraction(101, 100)

    assert "unbiased, exactly" in failed(Mutant(3, keep="1/2"))


def test_half_of_the_variance():
    """Catches half of the variance: of 1,000 trials, 2·χ² is below its limit with a chance of 4e-19."""

    class Mutant(Kary):
        def variance(self, n, share=None, **options):
            return Kary.variance(self, n, share, **options) / 2

    assert failed(Mutant(3, keep="1/2"), draws=200_000) == {"estimates have the stated variance"}


def test_intervals_of_one_value_used_for_all():
    """Catches 90% intervals of each value that are taken for those of all twelve together."""

    class Mutant(Kary):
        comparisons = 1

    assert failed(Mutant(12, keep="1/2")) == {"intervals cover"}


def test_many_reports_for_the_price_of_one():
    class Mutant(Kary):
        def longitudinal_loss(self, reports, *, changes):
            return self.loss() if reports < 5 else PureLoss("1/2", Adjacency.REPLACE)

    found = failed(Mutant(3, keep="1/2"))
    assert found == {"more reports never cost less", "two reports of one client within their loss"}


# ------------------------------------------------------------------ wires and aggregates that are wrong


def test_anything_is_valid():
    class Mutant(Kary):
        def valid(self, payloads):
            return np.ones(payloads.shape[0], dtype=np.bool_)

        def support(self, payloads):
            return np.bincount(row_numbers(payloads) % self.size, minlength=self.size)

    assert failed(Mutant(3, keep="1/2")) == {"valid payloads are those that clients send"}


def test_a_description_that_says_less():
    class Mutant(Kary):
        def describe(self):
            return {**Kary.describe(self), "keep": 0.5}

    report = check_randomizer(Mutant(3, keep="1/2"), draws=1000, raises=False)
    (found,) = [finding for finding in report.findings if finding.check == "description round trip"]
    assert not found.passed
    assert "isn't understood" in found.detail
    assert "float" in found.detail


def with_aggregator(changed):
    class Mutant(Kary):
        def aggregator(self):
            return changed(self)

    return Mutant(3, keep="1/2")


def test_merging_that_counts_twice():
    class Mutant(FrequencyAggregator):
        def __add__(self, other):
            merged = super().__add__(other)
            self.counters["supports"] += other.counters["supports"]
            return merged

    assert "merge, save and load" in failed(with_aggregator(Mutant))


def test_an_aggregate_that_forgets():
    class Mutant(FrequencyAggregator):
        def put(self, state):
            pass

    assert "merge, save and load" in failed(with_aggregator(Mutant))


def test_an_aggregate_that_strays_can_stop():
    class Mutant(FrequencyAggregator):
        def add_reports(self, reports):
            return super().add_reports(bytes(report) if not isinstance(report, str) else report for report in reports)

    assert "strays are dropped with a reason" in failed(with_aggregator(Mutant))


def test_an_aggregate_that_hides_what_it_dropped():
    class Mutant(FrequencyAggregator):
        def _drop(self, reason, number):
            pass

    assert failed(with_aggregator(Mutant)) == {"strays are dropped with a reason"}
