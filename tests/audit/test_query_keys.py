"""Keys that are discovered: one that a single unit holds must not show, and the query audit would notice."""

import pytest

from dither.audit.queries.audit import audit_query
from dither.audit.queries.neighbour_test import measure_neighbours
from dither.audit.queries.rehearsal import pricing_of, rehearsed
from dither.audit.queries.releases import Releases
from dither.audit.result import Verdict
from dither.audit.suite.questions import ShopBudget, shop
from dither.curator import OWNER, Terms
from dither.mechanisms import GaussianThreshold, PartitionSelection
from dither.progress import unwatched

SURE = 1 - 1e-6


def shown_to_everybody(patch):
    """Keys are discovered without noise: whoever holds one alone shows it."""
    patch.setattr(GaussianThreshold, "release", lambda self, counts, **more: (counts >= 1, counts))
    patch.setattr(PartitionSelection, "release", lambda self, counts, **more: counts >= 1)


PRODUCTS = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product"


@pytest.mark.usefixtures("counted_time")
def test_keys_that_are_shown_whoever_holds_them_are_caught(monkeypatch):
    """No cell moves too far, and tables whose cells move far have no such keys: only tables made for this tell."""
    shown_to_everybody(monkeypatch)
    found = audit_query(shop(ShopBudget.ZCDP), PRODUCTS, epsilon=4, budget=2, pairs=8, confidence=SURE, workers=1)
    assert [title for title, _ in found.titled] == ["releases", "keys", "answers"]
    assert found.neighbours.broken == ()
    assert found.keys.verdict is Verdict.BROKEN
    assert "shown" in found.keys.event
    assert "verdict     BROKEN. Outputs tell" in str(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("currency", [ShopBudget.ZCDP, ShopBudget.REPLACED])
def test_some_tables_have_keys_of_one_unit_alone(monkeypatch, tmp_path, currency, seed):
    rules = shop(currency)
    with pricing_of(rehearsed(rules, {}, tmp_path / "price")) as (pricing, quoting):
        prepared = pricing.prepare(PRODUCTS, Terms.of(epsilon=4), quoting.asker(OWNER))
    *_, alone = measure_neighbours(
        rules.schema, prepared, [prepared.priced], tmp_path, pairs=16, seconds=60, seed=seed, watch=unwatched
    )
    releases = Releases.of(alone.priced, *alone.measured, ("x", "neighbour"))
    honest = [releases.draw(side, 50) for side in releases.sides]
    shown_to_everybody(monkeypatch)
    broken = [releases.draw(side, 50) for side in releases.sides]
    flags = [place for place, name in enumerate(releases.columns) if name.endswith("shown")]
    certain = [place for place in flags if {*broken[0][:, place]} ^ {*broken[1][:, place]} == {0.0, 1.0}]
    assert certain
    assert all(side[:, place].max() == 0 for side in honest for place in certain)
