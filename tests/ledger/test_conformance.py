"""Every ledger of dither conforms, in every currency and adjacency."""

import pytest

from dither.checks import check_ledger
from dither.ledger import Currency, MemoryLedger, SqliteLedger
from dither.privacy import Adjacency


@pytest.mark.parametrize("currency", Currency)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_ledgers_conform(tmp_path, currency, adjacency):
    def on_disk(name):
        kept_for = {"currency": currency, "adjacency": adjacency, "unit": "each row", "dataset": name}
        return SqliteLedger.open(tmp_path / name, head=tmp_path / f"{name}.head", **kept_for)

    assert check_ledger(on_disk).passed
    in_memory = check_ledger(lambda name: MemoryLedger(currency=currency, adjacency=adjacency), durable=False)
    assert in_memory.passed
