"""The auditor on every protocol of local privacy: none contradicts its loss, and a claim of half the ε is refuted."""

import pytest

from dither.audit import Batched, Verdict, lower_bound
from dither.local import Kary, Unary
from dither.local.lab.catalogue import PROTOCOLS, Wanted
from support.sizes import short_or_full

SURE = 1 - 1e-9
EPSILON = 2
# seconds for each
BUDGET = short_or_full(0.12, 0.7)


def audited(protocol, values, claim=None, budget=BUDGET):
    """A report as rows of bytes, on two values of one person."""

    def draw(value, n):
        return protocol.randomize([value] * n)

    claim = protocol.loss() if claim is None else claim
    return lower_bound(Batched(draw), *values, claim=claim, confidence=SURE, budget=budget, workers=1)


def extremes(protocol):
    values = list(protocol.inputs())
    return values[0], values[-1]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_reports_are_as_private_as_they_claim(name):
    made = PROTOCOLS[name].make(Wanted.of(EPSILON, domain=4))
    found = audited(made, extremes(made))
    assert found.verdict is Verdict.HELD, found
    assert found.epsilon <= made.loss().pure()


@pytest.mark.parametrize("made", [Kary.for_epsilon(4, EPSILON), Unary.for_epsilon(4, EPSILON)], ids=["kary", "oue"])
@pytest.mark.usefixtures("counted_time")
def test_half_the_loss_is_not_enough(made):
    found = audited(made, extremes(made), claim=EPSILON / 2, budget=0.7)
    assert found.broken
