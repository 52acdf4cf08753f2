"""The exact law of a client's coins: every way they can fall, with its probability."""

from fractions import Fraction

import pytest

from dither.errors import InvalidParameter
from dither.local.clients.coins import SYSTEM, law_of

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def test_one_coin():
    assert law_of(lambda coins: coins.chance(THIRD)) == {True: THIRD, False: 1 - THIRD}


def test_sure_coins_have_one_way():
    assert law_of(lambda coins: (coins.chance(Fraction(1)), coins.chance(Fraction(0)))) == {(True, False): 1}


def test_a_uniform_number():
    assert law_of(lambda coins: coins.below(7)) == dict.fromkeys(range(7), Fraction(1, 7))


def test_later_coins_may_depend_on_earlier_ones():
    def draw(coins):
        return coins.below(3) if coins.chance(HALF) else 10 + coins.chance(THIRD)

    law = law_of(draw)
    assert law == {0: HALF / 3, 1: HALF / 3, 2: HALF / 3, 11: HALF * THIRD, 10: HALF * (1 - THIRD)}
    assert sum(law.values()) == 1


def test_outcomes_reached_in_several_ways_add_up():
    law = law_of(lambda coins: sum(coins.chance(THIRD) for _ in range(4)))
    assert [law[k] for k in range(5)] == [Fraction(n, 81) for n in (16, 32, 24, 8, 1)]


def test_rejection_that_never_ends_is_noticed():
    def draw(coins):
        while coins.below(2):
            pass
        return 0

    with pytest.raises(InvalidParameter, match="more than 50 ways"):
        law_of(draw, most=50)


@pytest.mark.parametrize("p", [Fraction(-1, 2), Fraction(3, 2)])
def test_probabilities_beyond_the_ends_are_refused(p):
    with pytest.raises(InvalidParameter, match="between 0 and 1"):
        SYSTEM.chance(p)


def test_system_coins_keep_to_sure_probabilities_and_ranges():
    assert all(SYSTEM.chance(Fraction(1)) and not SYSTEM.chance(Fraction(0)) for _ in range(100))
    assert {SYSTEM.below(3) for _ in range(200)} == {0, 1, 2}  # misses one with probability 3·(2/3)^200


def test_system_coins_have_the_probability():
    # Hoeffding: a right coin is off by more than 0.035 with probability below 2·exp(−2·10^4·0.035²) = 5e-11
    heads = sum(SYSTEM.chance(THIRD) for _ in range(10_000))
    assert abs(heads / 10_000 - 1 / 3) < 0.035
