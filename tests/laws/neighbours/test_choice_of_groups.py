"""What a unit keeps: as much as it may, chosen by itself, and a wrong choice is seen in every run.

In these worlds each unit has more groups and rows than allowed, so that what a mutant adds is there to be seen: a unit
that leaves takes one group, row or value too many along in every pair, whatever the salt. Where a mutant needs chance
to be seen, 16 units with at least four groups each would all have to choose alike: 4^-15 or less. Salts are fixed
besides, so that no run differs from another.
"""

import pytest

from support.sizes import at_night, some

from .choice import QUESTIONS, Seen, check
from .choice_mutants import MUTANTS

# Groups and rows that a unit may have, by the number of the world: (1, 1), (2, 1), (3, 1), (1, 2), (2, 2) …
WORLDS = some(range(9), 8)
# Two in three pairs are a unit that leaves; in the third one its like comes for it, which may hide in the same groups.
LEAVING = 2 / 3


@pytest.mark.parametrize("world", WORLDS)
def test_every_choice_is_within_its_claim_and_uses_it_up(world):
    seen = Seen()
    check(world, seen, questions=QUESTIONS if world % 4 == 0 else QUESTIONS[world % 3 :: 3])
    assert seen.broken == 0
    assert seen.wrong == []
    assert seen.pairs >= 12


@pytest.mark.parametrize(("mutant", "only", "claims"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
# in the night also how surely
@pytest.mark.parametrize("world", [pytest.param(4, marks=at_night), 8])
def test_a_wrong_choice_is_noticed(mutant, only, claims, world, monkeypatch):
    mutant(monkeypatch)
    seen = Seen()
    check(world, seen, only=only, first=not claims or world == 8)
    assert seen.noticed
    if claims and world == 4:
        assert seen.broken >= LEAVING * seen.pairs * 0.95, (seen.broken, seen.pairs)
