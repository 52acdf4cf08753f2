"""node's pg: plain, with parameters, prepared, and many at once from a pool."""

import json
import os
import subprocess
from pathlib import Path


def test_questions_from_node(served, node):
    program, modules = node
    settings = {"PORT": str(served.port), "TOKEN": served.password, "MODULES": str(modules), "PATH": os.environ["PATH"]}
    script = Path(__file__).with_name("questions.js")
    # one for each of: plain, parameters, prepared, and the same question from six at once
    with served.charging(4):
        done = subprocess.run(
            [program, str(script)], env=settings, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["city"] for row in found["plain"]] == ["Basel", "Bern", "Zug"]
    assert found["again"] == found["plain"]
    plain = "SELECT city, COUNT(*) AS n FROM orders WHERE amount < 801 GROUP BY city ORDER BY city"
    assert [(row["city"], int(row["n"])) for row in found["plain"]] == served.answer(plain)
    assert len(found["parameters"]) == 1
    assert found["prepared"][0] == found["prepared"][1] == found["prepared"][2]
    assert found["catalogue"] == [{"relname": "orders"}]
    assert found["refused"]["code"] == "0A000"
    assert found["refused"]["hint"]
    assert found["marked"] == {"code": "42703", "position": "23"}
    assert found["notices"] > 0
    assert len(set(found["together"])) == 1
