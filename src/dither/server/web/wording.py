"""What is wrong, in the words of the page: without Python, the repository, or a way to read public tables."""

from __future__ import annotations

import re
from dataclasses import replace

from dither.server.problems import Problem

PYTHON_TALK = re.compile(r"\bepsilon=(?=[0-9])")
REPOSITORY_TALK = re.compile(r"(?:^|(?<=[.;]))\s*docs/\S+\.md lists [^.;]*[.]?")
NO_WAY_TO_READ = re.compile(r"(?:^|(?<=[.;]))\s*public (?:tables|ones) can be read as they are", re.IGNORECASE)


def worded(problem: Problem) -> Problem:
    """The same, with a hint that helps here."""
    hint = PYTHON_TALK.sub("ε = ", problem.hint)
    hint = NO_WAY_TO_READ.sub("", REPOSITORY_TALK.sub("", hint)).strip(" ;")
    return replace(problem, hint=hint[:1].upper() + hint[1:])
