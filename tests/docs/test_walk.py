"""The way of one question through the files: short enough, and in the order of the steps of ARCHITECTURE.md."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# 97 before modules that know each other were put together
MOST_FILES = 55
STEPS = (
    "curator/curator.py",
    "query/sql/queries.py",
    "query/price/noise.py",
    "ledger/store/charge_or_replay.py",
    "engines/bounding.py",
    "curator/answers/release.py",
    "curator/answers/post_processing.py",
)


def test_a_first_question_passes_few_files_in_the_order_of_its_steps():
    command = [sys.executable, str(ROOT / "docs" / "walk.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    files = re.findall(r"^ *\d+  (\S+\.py)  ", printed, re.MULTILINE)
    assert len(files) == len(set(files)) <= MOST_FILES, printed
    assert [file for file in files if file in STEPS] == list(STEPS)
    assert all((ROOT / "src" / "dither" / file).exists() for file in files)
