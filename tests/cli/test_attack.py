"""``dither attack``: the list, one attack, its picture, and what is typed wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from dither.attacks import Outcome, Published, ReleaseKind, Score
from dither.attacks.registry import ATTACKS
from dither.cli.attack import show_outcome
from dither.cli.main import main
from dither.cli.screen import console
from dither.errors import MissingLibrary

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides" / "attacks"


@pytest.fixture(autouse=True)
def _away(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")


@pytest.mark.parametrize("arguments", [["attack"], ["attack", "--list"]])
def test_the_list_has_every_attack(arguments, forked):
    done = forked(*arguments)
    assert done.status == 0
    shown = done.out
    assert all(f"\n{name} " in shown and attack.question in shown for name, attack in ATTACKS.items())


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_has_a_page_that_runs_it_and_a_picture(name):
    page = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    assert f"$ dither attack {name}" in page
    assert f"]({name}.svg)" in page
    assert (GUIDES / f"{name}.svg").stat().st_size < 200_000


def test_an_attack_says_both_releases_and_saves_its_picture(forked):
    done = forked("attack", "bayes", "--plot", "seen.svg")
    assert done.status == 0, done.err
    shown = done.out
    assert "unprotected" in shown
    assert "private" in shown
    assert "published" in shown
    assert shown.endswith("picture: seen.svg\n")
    assert Path("seen.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["linkag"], "did you mean linkage?"),
        (["unheard-of"], "There are linkage, ratings"),
        (["bayes", "--plot", "seen.pdf"], "--plot takes a file that ends in .svg or .png; got 'seen.pdf'"),
        (["bayes", "--plot", "a-file/seen.svg"], "the picture can't be saved as 'a-file/seen.svg'"),
        (["bayes", "--plot", "a-directory.svg"], "the picture can't be saved as 'a-directory.svg'"),
    ],
)
def test_what_is_typed_wrong_is_explained_before_anything_runs(arguments, told, capsys, monkeypatch):
    Path("a-file").touch()
    Path("a-directory.svg").mkdir()
    monkeypatch.setitem(ATTACKS, "bayes", replace(ATTACKS["bayes"], run=None))
    assert main(["attack", *arguments]) == 1
    assert told in capsys.readouterr().err


def test_a_seed_below_zero_is_refused(forked):
    done = forked("attack", "bayes", "--seed", "-1")
    assert done.status == 2
    assert "--seed" in done.err


def outcome(draw=lambda figure: None):
    scores = (
        Score(
            release=ReleaseKind.UNPROTECTED,
            what="names found",
            value=0.87,
            guessing=0.01,
            published=Published(figure="87%", source="Sweeney 2000"),
            detail="of a thousand",
        ),
        Score(release=ReleaseKind.PRIVATE, what="names found", value=0.012),
    )
    return Outcome(attack="made-up", scores=scores, summary="It fails.", draw=draw)


def test_scores_are_a_table_with_notes(capsys):
    show_outcome("A title", outcome(), console())
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "A title",
        "release what the attacker gets success without it note",
        "unprotected names found 87.0% 1.0% 1",
        "private names found 1.2%",
        "1 published: 87%, Sweeney 2000; of a thousand",
        "",
        "It fails.",
    ]


def test_without_matplotlib_the_numbers_are_there_and_the_way_to_the_picture(monkeypatch, capsys):
    def plot(self, path):
        raise MissingLibrary("pictures need matplotlib: pip install 'dither[plots]'")

    monkeypatch.setattr(Outcome, "plot", plot)
    assert main(["attack", "bayes"]) == 0
    captured = capsys.readouterr()
    assert "private" in captured.out
    assert "pip install 'dither[plots]'" in captured.err
