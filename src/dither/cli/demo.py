"""``dither demo``: a shop, a policy, five questions, and the budget afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dither.cli.screen import console, explain, show_answer, show_budget
from dither.cli.shop import CUSTOMERS, ORDERS, set_up
from dither.errors import InvalidParameter, OutOfBudget, Refused

QUESTIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "How many orders were there, and how much was sold, in each city?",
        "SELECT city, COUNT(*) AS orders, SUM(amount) AS sales FROM orders GROUP BY city ORDER BY orders DESC",
        {"epsilon": "0.5"},
    ),
    (
        "The average order: AVG is measured from both ends, and its interval needs no second question.",
        "SELECT city, AVG(amount) AS average FROM orders GROUP BY city",
        {"epsilon": "0.5"},
    ),
    (
        "Which articles sell best? Nobody declared the articles: rare ones stay hidden.",
        "SELECT product, COUNT(*) AS sold FROM orders GROUP BY product ORDER BY sold DESC LIMIT 6",
        {"epsilon": "0.8"},
    ),
    (
        "Customers by age, wanted within ±60: the smallest ε that does it.",
        (
            "SELECT c.age, COUNT(DISTINCT o.customer) AS customers FROM orders o JOIN customers c USING (customer) "
            "GROUP BY c.age"
        ),
        {"error": "60"},
    ),
    (
        "The median of what each customer spent in all.",
        (
            "SELECT MEDIAN(spent, contribution_bounds_per_row => (0, 500)) AS median_spent FROM "
            "(SELECT customer, SUM(amount) AS spent FROM orders GROUP BY customer) AS per_customer"
        ),
        {"epsilon": "0.3"},
    ),
)
TRY = 'dither ask "SELECT COUNT(*) AS n FROM orders" --epsilon 0.1'
REFUSED = "SELECT customer, amount FROM orders WHERE customer = 4711"


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIRECTORY", help="Leave the shop, its policy and its ledger in this directory."
        ),
    ] = None,
) -> None:
    """Show it all on a made-up shop.

    Makes a shop, protects it, asks five questions and shows what they cost.
    """
    if keep is None:
        with tempfile.TemporaryDirectory() as directory:
            _story(Path(directory), console())
        return
    if keep.exists() and any(keep.iterdir()):
        raise InvalidParameter(f"{keep} is not empty: name a new directory")
    keep.mkdir(parents=True, exist_ok=True)
    _story(keep, console())
    console().print(f"\nKept in {keep}: go there and try  {TRY}")


def _story(directory: Path, screen: Console) -> None:
    from dither.curator import Curator
    from dither.privacy import Guarantee

    policy = set_up(directory)
    screen.print(f"A shop of {CUSTOMERS:,} customers and {ORDERS:,} orders, made up. Each customer is a privacy unit.")
    screen.print("The owner states what is public in dither.toml: units, bounds, keys, and a budget of ε = 3.\n")
    with Curator.open(policy) as curator:
        for number, (title, sql, asked) in enumerate(QUESTIONS, start=1):
            screen.print(f"[bold]{number}. {title}[/bold]")
            screen.print(Text(f"   {sql}", style="dim"))
            show_answer(curator.sql(sql, analyst="ana", **asked), screen)  # type: ignore[arg-type]
            screen.print()
        screen.print("[bold]The first question again, in another order: from the record, free.[/bold]")
        again = curator.sql(QUESTIONS[0][1].replace("DESC", "ASC"), analyst="ana", epsilon="0.5")
        screen.print(Text(f"   cost {again.cost}\n"))
        screen.print("[bold]A question about one person:[/bold]")
        screen.print(Text(f"   {REFUSED}", style="dim"))
        try:
            curator.sql(REFUSED, analyst="ana", epsilon="0.1")
        except (Refused, OutOfBudget) as problem:
            explain(problem, REFUSED, screen)
        screen.print("\n[bold]The budget[/bold]")
        show_budget(curator.budget(), screen)
        spent = curator.budget()[0]
        screen.print(Guarantee(epsilon=spent.epsilon_spent, delta=spent.delta).sentence(prior=0.1))
        checked = curator.ledger.verify()
        screen.print(f"The ledger's {checked.entries} entries hold together.")
