"""Faults that keep to the law of one report of the first few values, and are caught nevertheless."""

from fractions import Fraction

import numpy as np
import pytest

from dither.checks import check_randomizer
from dither.entropy import bernoulli_many
from dither.errors import InvalidData
from dither.local.clients.coins import SYSTEM as COINS
from dither.local.clients.kary import KaryClient
from dither.local.core.bits import coin_rows, packed
from dither.local.frequency.kary import Kary
from dither.local.frequency.unary import Unary
from dither.local.rappor.protocol import Rappor
from dither.privacy import Adjacency, PureLoss
from support.sizes import at_night


def failed(protocol, **options):
    """The names of the checks that failed; every class here differs from what its description makes."""
    report = check_randomizer(protocol, raises=False, **{"draws": 20_000, **options})
    names = {finding.check.split(" (")[0] for finding in report.findings if not finding.passed}
    return names - {"description round trip"}


class WithClient(Kary):
    """k-ary response with another client."""

    made = KaryClient

    def client(self):
        return self.made(self.describe())


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(Rappor(bits=8, hashes=1, cohorts=4, f="1/2", p="1/4", q="3/4"), marks=at_night),
        Rappor(bits=16, hashes=2, cohorts=1, f="1/2"),
    ],
)
def test_a_client_that_keeps_a_memory_passes(protocol):
    report = check_randomizer(protocol, draws=20_000)
    (again,) = [finding for finding in report.findings if finding.check.startswith("two reports")]
    assert "not listed" not in again.detail


def test_a_value_in_the_middle_that_cannot_be_answered():
    class Client(KaryClient):
        def payload(self, value, coins=COINS):
            if value == 70:
                raise InvalidData("no answer")
            return super().payload(value, coins)

    class Mutant(WithClient):
        made = Client

    assert "every value is answered" in failed(Mutant(100, keep="1/2"))


def test_a_kept_truth_that_is_quicker():
    class Client(KaryClient):
        def payload(self, value, coins=COINS):
            truth, size = self.domain.place(value), self.domain.size
            if truth == 0:
                coins.chance(Fraction(1, 2))
            step = 0 if coins.chance(self.keep) else 1 + coins.below(size - 1)
            return bytes([(truth + step) % size])

    class Mutant(WithClient):
        made = Client

    assert failed(Mutant(3, keep="1/2")) == {"as many coins whatever the value"}


def test_the_truth_in_the_second_report():
    class Client(KaryClient):
        told = 0

        def payload(self, value, coins=COINS):
            self.told += 1
            noisy = super().payload(value, coins)
            return noisy if self.told % 2 else bytes([self.domain.place(value)])

    class Mutant(WithClient):
        made = Client

    assert "two reports of one client within their loss" in failed(Mutant(3, keep="1/2"))


def test_half_of_the_loss_where_nobody_can_list_the_laws():
    class Mutant(Unary):
        def loss(self):
            return Unary.loss(self) if self.size < 10 else PureLoss("1/2", Adjacency.REPLACE)

        def reduced(self):
            return Mutant(4, keep=self.keep, noise=self.noise)

    assert "the client says what it costs" in failed(Mutant(40, keep="1/2", noise="1/4"))


def test_a_client_that_says_less_than_it_costs():
    class Client(KaryClient):
        @property
        def epsilon(self):
            return super().epsilon * 0.999

    class Mutant(WithClient):
        made = Client

    assert failed(Mutant(3, keep="1/2")) == {"the client says what it costs", "exact law within the loss"}


def test_bits_of_different_bytes_with_one_coin():
    class Mutant(Unary):
        def randomize_places(self, truths, source):
            bits = coin_rows(self.noise, truths.size, self.size, source)
            if self.size > 8:
                bits[:, self.size // 2 :] = bits[:, : self.size // 2]
            bits[np.arange(truths.size), truths] = bernoulli_many(self.keep, truths.size, source)
            return packed(bits)

    assert "client and simulation agree" in failed(Mutant(48, keep="1/2", noise="1/4"))
