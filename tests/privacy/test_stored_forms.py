"""Everything that is stored is read back by a process that has loaded nothing, whatever kind it is.

Each kind has a process of its own, so that none can be read because another one was.
"""

import json
import pkgutil
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from inspect import isabstract
from pathlib import Path

import pytest

import dither
from dither.anonymize.models import catalogue as models
from dither.errors import InvalidData, InvalidParameter
from dither.local import Attributes, Kary, shuffled
from dither.local.clients import base as clients
from dither.local.core import protocol
from dither.local.core.losses import ThinnedResponseLoss
from dither.local.lab.catalogue import PROTOCOLS, Wanted
from dither.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    KaryResponse,
    Laplace,
    LaplaceThreshold,
    RandomizedResponse,
)
from dither.privacy import (
    Adjacency,
    ApproximateLoss,
    PrivacyLoss,
    PureLoss,
    Sensitivity,
    ZcdpLoss,
    as_replace,
    poisson,
    without_replacement,
)
from dither.privacy.kinds import KINDS

FORMS = Path(__file__).with_name("stored_forms.json")
L1, L2, REPLACE = Sensitivity.l1(1), Sensitivity.l2(1), Adjacency.REPLACE
LAPLACE, GAUSSIAN = Laplace(scale=2).loss(L1), Gaussian(scale=3).loss(L2)
# One loss of each kind; those that hold others hold kinds of other modules.
LOSSES = {
    loss.kind: loss
    for loss in (
        ApproximateLoss("0.7", "1e-4"),
        Exponential(scale=2).loss(Sensitivity.linf(1)),
        LAPLACE + 2 * GAUSSIAN + poisson(DiscreteLaplace(scale=5).loss(L1), "0.1"),
        DiscreteGaussian(scale=4).loss(L2),
        DiscreteLaplace(scale=2).loss(Sensitivity.l1(3)),
        GAUSSIAN,
        LaplaceThreshold(scale=2, threshold=20).loss(Sensitivity.contribution(groups=2, per_group=1)),
        poisson(LAPLACE, "0.1").grouped(3),
        KaryResponse(5, "1/2").loss(),
        LAPLACE,
        poisson(GAUSSIAN, "0.01"),
        PureLoss("0.7"),
        RandomizedResponse("1/4").loss(),
        as_replace(GAUSSIAN),
        shuffled(1, 1000),
        ThinnedResponseLoss(Fraction(3), Fraction(11, 2)),
        without_replacement(Gaussian(scale=2).loss(Sensitivity.l2(1, adjacency=REPLACE)), sample=1, population=20),
        ZcdpLoss("0.2"),
    )
}


@pytest.fixture(scope="module")
def every_module():
    """All of dither, loaded; a few modules need more than the libraries, and their layers state no losses."""
    for found in pkgutil.walk_packages(dither.__path__, "dither."):
        import_module(found.name)


def subclasses(of):
    """Every class below this one that its module still has; ``dataclass(slots=True)`` throws the first of two away."""
    for cls in of.__subclasses__():
        if getattr(sys.modules[cls.__module__], cls.__name__, None) is cls and cls.__module__.startswith("dither."):
            yield cls
        yield from subclasses(cls)


@pytest.mark.usefixtures("every_module")
def test_every_kind_of_loss_is_in_the_table_and_nothing_else():
    found = {cls for cls in subclasses(PrivacyLoss) if not isabstract(cls)}
    assert all("kind" in cls.__dict__ for cls in found), "a loss without a kind of its own can't be read back"
    assert {cls.kind: f"{cls.__module__}:{cls.__qualname__}" for cls in found} == dict(KINDS)
    assert list(KINDS) == sorted(KINDS)
    assert LOSSES.keys() == KINDS.keys(), "one loss of each kind is read below"


def test_forms_are_permanent():
    """Byte by byte what stood in ledgers before: a field that is renamed or moved may not change them."""
    forms = {kind: LOSSES[kind].to_json() for kind in sorted(LOSSES)}
    assert json.dumps(forms, indent=1) + "\n" == FORMS.read_text(encoding="utf-8")
    assert {kind: PrivacyLoss.from_json(form) for kind, form in forms.items()} == LOSSES


READ_LOSS = """
import json, sys
import dither as dp
form, delta = json.load(sys.stdin)
assert not [name for name in sys.modules if name.startswith("dither.mechanisms")]
loss = dp.PrivacyLoss.from_json(form)
print(json.dumps([loss.to_json(), f"{type(loss).__module__}:{type(loss).__qualname__}", loss.epsilon(delta).hex()]))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_has_loaded_nothing_reads_this_kind(kind, fresh, tmp_path):
    program = tmp_path / "read.py"
    program.write_text(READ_LOSS, encoding="utf-8")
    loss = LOSSES[kind]
    done = fresh(program=program, given=json.dumps([loss.to_json(), 1e-3]))
    assert done.status == 0, done.err
    form, home, epsilon = json.loads(done.out)
    assert PrivacyLoss.from_json(form) == loss
    assert (form, home, epsilon) == (loss.to_json(), KINDS[kind], loss.epsilon(1e-3).hex())


def test_a_new_interpreter_reads_a_loss():
    """Once without the fork server: the same program, nothing loaded at all."""
    given = json.dumps([LOSSES["composed"].to_json(), 1e-3])
    done = subprocess.run([sys.executable, "-c", READ_LOSS], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == LOSSES["composed"].to_json()


def test_a_kind_that_is_not_known_says_what_to_do():
    with pytest.raises(
        InvalidParameter, match=r"unknown kind of loss 'mine'.*later version.*class of your own.*import"
    ):
        PrivacyLoss.from_json({"version": 1, "kind": "mine", "adjacency": "replace"})


TAKE_A_KIND = """
import dither as dp
from dither.privacy import PureLoss
try:
    class Mine(PureLoss, kind="laplace"):
        pass
except dp.DitherError as problem:
    print(problem)
print(dp.PrivacyLoss.from_json(dp.Laplace(scale=2).loss(dp.Sensitivity.l1(1)).to_json()))
"""


def test_a_kind_of_dither_can_not_be_taken_before_it_is_loaded(fresh, tmp_path):
    program = tmp_path / "take.py"
    program.write_text(TAKE_A_KIND, encoding="utf-8")
    done = fresh(program=program)
    assert done.status == 0, done.err
    assert "the loss kind 'laplace' is taken by dither.mechanisms.laplace:LaplaceLoss" in done.out
    assert "LaplaceLoss(" in done.out.splitlines()[-1]


OWN_KIND = """
from dither.privacy import PrivacyLoss, PureLoss

class Mine(PureLoss, kind="mine"):
    pass

stored = (Mine("1/2") + 3 * PureLoss(1)).to_json()
assert PrivacyLoss.from_json(stored) == Mine("1/2") + 3 * PureLoss(1)
print(type(PrivacyLoss.from_json(stored["parts"][0]["loss"])).__name__, stored["parts"][0]["loss"]["kind"])
"""


def test_a_class_of_ones_own_is_known_once_it_is_defined(fresh, tmp_path):
    program = tmp_path / "own.py"
    program.write_text(OWN_KIND, encoding="utf-8")
    done = fresh(program=program)
    assert (done.status, done.out.split()) == (0, ["Mine", "mine"]), done.err


# ------------------------------------------------------------------ what else is stored


WANTED = Wanted.of(2, domain=8)
SURVEYS = {
    form["protocol"]: form
    for form in (
        Attributes.for_epsilon({"smokes": ["no", "yes"], "decade": 10}, 8).describe(),
        *(known.make(WANTED).describe() for known in PROTOCOLS.values()),
    )
}


@pytest.mark.usefixtures("every_module")
def test_every_protocol_is_in_the_tables_of_clients_and_of_aggregators():
    for place, (side, name) in enumerate(((clients.Client, "protocol"), (protocol.Protocol, "name"))):
        homes = {known: modules[place] for known, modules in clients.PROTOCOLS.items()}
        assert {getattr(cls, name): cls.__module__ for cls in subclasses(side) if name in cls.__dict__} == homes
    assert SURVEYS.keys() == clients.PROTOCOLS.keys()


READ_SURVEY = """
import json, sys
from dither.local.clients import client_of
form = json.load(sys.stdin)
client = client_of(form)
assert not [name for name in sys.modules if name in ("dither.local.core.protocol", "dither.mechanisms")]
from dither.local import load, protocol_of
found = protocol_of(form)
found.aggregator().save("kept.json")
print(json.dumps([found.describe(), load("kept.json").protocol.describe(), client.protocol, found.name]))
"""


@pytest.mark.parametrize("name", clients.PROTOCOLS)
def test_a_process_that_has_loaded_nothing_reads_this_survey(name, fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "read.py"
    program.write_text(READ_SURVEY, encoding="utf-8")
    done = fresh(program=program, given=json.dumps(SURVEYS[name]))
    assert done.status == 0, done.err
    assert json.loads(done.out) == [json.loads(json.dumps(SURVEYS[name]))] * 2 + [name] * 2


@pytest.mark.usefixtures("every_module")
def test_every_model_of_anonymity_is_read_back():
    known = {cls.name for cls in subclasses(models.Model) if not isabstract(cls)}
    with pytest.raises(InvalidParameter) as told:
        models.model_from_json({"model": "none of them"})
    assert set(str(told.value).partition("one of ")[2].partition(";")[0].split(", ")) == known


def test_an_aggregate_of_another_protocol_is_not_called_damaged():
    saved = Kary(3, "1/2").aggregator().to_json()
    with pytest.raises(InvalidData, match="can't be read: the protocol 'telepathy' isn't known"):
        protocol.aggregator_of({**saved, "collection": {"protocol": "telepathy"}})
