"""The attacks by name, in the order of the guides."""

from __future__ import annotations

from dither.attacks.base import Attack
from dither.attacks.bayes import ATTACK as BAYES
from dither.attacks.differencing import ATTACK as DIFFERENCING
from dither.attacks.genomes import ATTACK as GENOMES
from dither.attacks.inversion import ATTACK as INVERSION
from dither.attacks.linkage import ATTACK as LINKAGE
from dither.attacks.membership import ATTACK as MEMBERSHIP
from dither.attacks.ratings import ATTACK as RATINGS
from dither.attacks.reconstruction import ATTACK as RECONSTRUCTION
from dither.errors import InvalidParameter, did_you_mean

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (LINKAGE, RATINGS, DIFFERENCING, RECONSTRUCTION, GENOMES, MEMBERSHIP, INVERSION, BAYES)
}


def attack_named(name: str) -> Attack:
    """The attack of this name; a wrong name is answered with the nearest and the whole list."""
    if name in ATTACKS:
        return ATTACKS[name]
    near = did_you_mean(name, ATTACKS)
    meant = "" if near is None else f"did you mean {near}? "
    raise InvalidParameter(f"there is no attack {name!r}: {meant}There are {', '.join(ATTACKS)}")
