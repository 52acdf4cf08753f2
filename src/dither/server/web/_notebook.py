"""A notebook that fetches an answer again: for those who go on from here in Python."""

from __future__ import annotations

import json


def notebook(url: str, number: str, sql: str) -> bytes:
    """The notebook (nbformat 4.5); it asks for the token and holds none."""
    cells = [
        _markdown("Answers of a dither server. Reading this answer again is free."),
        _code(
            "import getpass\n\nimport dither\n\n"
            f'server = dither.client({url!r}, getpass.getpass("token: "))\n'
            f"answer = server.answer({number!r})\nanswer"
        ),
        _markdown("The question was:\n\n```sql\n" + sql.replace("```", "` ` `") + "\n```"),
        _code("frame = answer.to_pandas()\nframe"),
    ]
    form = {
        "cells": [{**cell, "id": f"cell-{place}"} for place, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(form, indent=1).encode()


def _markdown(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, object]:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
