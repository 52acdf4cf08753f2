"""All privacy models, by name: k-anonymity, k-map, l-diversity, t-closeness, δ-disclosure privacy, β-likeness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dither.anonymize.models.base import Model, Overall
from dither.anonymize.models.k_anonymity import KAnonymity, KMap
from dither.anonymize.models.l_diversity import DistinctDiversity, EntropyDiversity, RecursiveDiversity
from dither.anonymize.models.t_closeness import BetaLikeness, DeltaDisclosure, Distance, TCloseness
from dither.errors import InvalidParameter

__all__ = [
    "BetaLikeness",
    "DeltaDisclosure",
    "Distance",
    "DistinctDiversity",
    "EntropyDiversity",
    "KAnonymity",
    "KMap",
    "Model",
    "Overall",
    "RecursiveDiversity",
    "TCloseness",
    "model_from_json",
]


def model_from_json(form: Mapping[str, Any], *, population: Any = None) -> Model:
    """The model that ``to_json`` wrote; ``population`` for k-map.

    Example:
        >>> model_from_json(TCloseness("1/5", "wage", Distance.ORDERED).to_json())
        TCloseness(t=Fraction(1, 5), column='wage', distance=<Distance.ORDERED: 'ordered'>)
    """
    fields = {key: value for key, value in form.items() if key != "model"}
    kinds: dict[str, Any] = {
        kind.name: kind
        for kind in (
            KAnonymity,
            KMap,
            DistinctDiversity,
            EntropyDiversity,
            RecursiveDiversity,
            TCloseness,
            DeltaDisclosure,
            BetaLikeness,
        )
    }
    kind = kinds.get(form.get("model", ""))
    if kind is None:
        raise InvalidParameter(f"model must be one of {', '.join(kinds)}; got {form.get('model')!r}")
    if kind is KMap:
        fields["population"] = population
    try:
        if kind is TCloseness:
            fields["distance"] = Distance(fields["distance"])
        found: Model = kind(**fields)
    except (TypeError, KeyError):
        raise InvalidParameter(f"{form['model']} has other parameters than {', '.join(fields)}") from None
    return found
