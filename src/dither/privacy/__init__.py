"""Who is protected, how far they can move an answer, and what that costs: units, sensitivity and the loss algebra."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.privacy.calibration import calibrate
    from dither.privacy.composition import Composed, compose
    from dither.privacy.currency import (
        PureFilter,
        PureOdometer,
        RenyiFilter,
        RenyiOdometer,
        ZcdpFilter,
        ZcdpOdometer,
    )
    from dither.privacy.group import as_replace
    from dither.privacy.guarantee import Guarantee
    from dither.privacy.loss import Array, Cells, Direction, Json, PrivacyLoss, at_least_nothing, mirrored
    from dither.privacy.pld import Pld
    from dither.privacy.sampling import poisson, without_replacement
    from dither.privacy.sensitivity import Norm, Sensitivity
    from dither.privacy.stated import ApproximateLoss, PureLoss, ZcdpLoss
    from dither.privacy.theorems import advanced_composition, basic_composition, optimal_composition
    from dither.privacy.unit import Adjacency, Contribution, PrivacyUnit

__all__ = [
    "Adjacency",
    "ApproximateLoss",
    "Array",
    "Cells",
    "Composed",
    "Contribution",
    "Direction",
    "Guarantee",
    "Json",
    "Norm",
    "Pld",
    "PrivacyLoss",
    "PrivacyUnit",
    "PureFilter",
    "PureLoss",
    "PureOdometer",
    "RenyiFilter",
    "RenyiOdometer",
    "Sensitivity",
    "ZcdpFilter",
    "ZcdpLoss",
    "ZcdpOdometer",
    "advanced_composition",
    "as_replace",
    "at_least_nothing",
    "basic_composition",
    "calibrate",
    "compose",
    "mirrored",
    "optimal_composition",
    "poisson",
    "without_replacement",
]

_HOMES = {
    "dither.privacy.calibration": ("calibrate",),
    "dither.privacy.composition": ("Composed", "compose"),
    "dither.privacy.currency": (
        "PureFilter",
        "PureOdometer",
        "RenyiFilter",
        "RenyiOdometer",
        "ZcdpFilter",
        "ZcdpOdometer",
    ),
    "dither.privacy.group": ("as_replace",),
    "dither.privacy.guarantee": ("Guarantee",),
    "dither.privacy.loss": ("Array", "Cells", "Direction", "Json", "PrivacyLoss", "at_least_nothing", "mirrored"),
    "dither.privacy.pld": ("Pld",),
    "dither.privacy.sampling": ("poisson", "without_replacement"),
    "dither.privacy.sensitivity": ("Norm", "Sensitivity"),
    "dither.privacy.stated": ("ApproximateLoss", "PureLoss", "ZcdpLoss"),
    "dither.privacy.theorems": ("advanced_composition", "basic_composition", "optimal_composition"),
    "dither.privacy.unit": ("Adjacency", "Contribution", "PrivacyUnit"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.privacy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
