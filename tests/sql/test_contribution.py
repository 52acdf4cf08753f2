"""Facts and joins: how much of one unit counts, where public facts say what it has and where tables are joined."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dither.errors import Refused
from dither.privacy import Adjacency
from dither.query.kinds import Interval, Kind
from dither.query.price.noise import QueryBudget, price
from dither.query.schema import ColumnFacts, Schema
from dither.query.sql import bind
from support.schemas import between, column, table

I, T, B, DATE = Kind.INTEGER, Kind.TEXT, Kind.BOOLEAN, Kind.DATE  # noqa: E741


def unique(*keys):
    return tuple(frozenset(key) for key in keys)


RATINGS = table(
    "ratings",
    column("user", I),
    column("film", I),
    column("stars", I, between=between(1, 5)),
    column("note", T, hidden=True),
    unit_column="user",
    unique=unique(["user", "film"]),
    groups=10,
    rows=20,
)
DIARY = table(
    "diary",
    column("user", I),
    column("day", DATE, between=between(0, 6)),
    column("evening", B),
    column("mood", T, keys=("bad", "good")),
    column("score", Kind.DOUBLE, between=between(0, 2), step=Fraction(1, 2)),
    unit_column="user",
    unique=unique(["user", "day", "evening"]),
    groups=10,
    rows=20,
)
PEOPLE = table(
    "people", column("user", I), column("age", I), unit_column="user", unique=unique(["user"]), groups=4, rows=7
)
TRIPS = table("trips", column("user", I), column("city", T), unit_column="user", groups=4, rows=7, rows_at_most=3)
CALLS = table("calls", column("user", I), column("city", T), column("day", DATE), unit_column="user", groups=2, rows=5)
HOMES = table("homes", column("user", I), unit_column="user", rows_at_most=1)
FILMS = table(
    "films",
    column("id", I, between=between(1, 12)),
    column("genre", T, keys=("drama", "war")),
    private=False,
    unique=unique(["id"]),
)
TAGS = table("tags", column("film", I), column("tag", T), private=False)
SCHEMA = Schema({each.name: each for each in (RATINGS, DIARY, PEOPLE, TRIPS, CALLS, HOMES, FILMS, TAGS)})


def bound(sql, schema=SCHEMA):
    aggregation = bind(sql, schema).aggregation
    return aggregation.groups, aggregation.rows


FACTS = [
    # what the policy cuts to, where nothing is known
    ("SELECT COUNT(*) FROM ratings", 1, 20),
    ("SELECT stars, COUNT(*) FROM ratings GROUP BY stars", 5, 20),
    # a unique key: one row in each of its groups, whatever the filter
    ("SELECT film, COUNT(*) FROM ratings GROUP BY film", 10, 1),
    ("SELECT f, COUNT(*) FROM (SELECT film AS f, stars FROM ratings WHERE stars > 2) AS r GROUP BY f", 10, 1),
    ("SELECT film, stars, AVG(stars) FROM ratings GROUP BY film, stars", 10, 1),
    # not of what is computed from it
    ("SELECT film % 2, COUNT(*) FROM ratings GROUP BY 1", 3, 20),
    # and not of rows that are there twice
    (
        "SELECT film, COUNT(*) FROM (SELECT film FROM ratings UNION ALL SELECT film FROM ratings) AS r GROUP BY film",
        10,
        20,
    ),
    # public values of what else is in the key: 7 days, twice each
    ("SELECT COUNT(*) FROM diary", 1, 14),
    ("SELECT mood, COUNT(*) FROM diary GROUP BY mood", 2, 14),
    ("SELECT day, COUNT(*) FROM diary GROUP BY day", 7, 2),
    ("SELECT evening, COUNT(*) FROM diary GROUP BY evening", 2, 7),
    ("SELECT evening, day, COUNT(*) FROM diary GROUP BY ALL", 10, 1),
    # a public table says which films there are, if it is joined on its own unique key
    ("SELECT COUNT(*) FROM ratings JOIN films ON film = id", 1, 12),
    ("SELECT COUNT(*) FROM films, ratings WHERE film = id", 1, 20),
    ("SELECT genre, COUNT(*) FROM ratings JOIN films ON film = id GROUP BY genre", 2, 12),
    ("SELECT COUNT(*) FROM ratings LEFT JOIN films ON film = id", 1, 20),
    ("SELECT COUNT(*) FROM ratings WHERE film IN (SELECT id FROM films)", 1, 12),
    ("SELECT COUNT(*) FROM ratings WHERE film NOT IN (SELECT id FROM films)", 1, 20),
    ("SELECT id, COUNT(*) FROM ratings JOIN films ON film = id GROUP BY id", 10, 1),
    ("SELECT id, COUNT(*) FROM ratings LEFT JOIN films ON film = id GROUP BY id", 10, 20),
    # a public table that may hold a film several times copies rows
    ("SELECT film, COUNT(*) FROM ratings JOIN tags USING (film) GROUP BY ratings.film", 10, 20),
    # one row for each unit: nothing is to be cut
    ("SELECT COUNT(*) FROM people", 1, 1),
    ("SELECT age, COUNT(*) FROM people WHERE age > 3 GROUP BY age", 1, 1),
    ("SELECT age, COUNT(*) FROM (SELECT DISTINCT user, age FROM people) AS p GROUP BY age", 1, 1),
    ("SELECT COUNT(*) FROM people JOIN tags ON age = film", 1, 7),
    # at most so many rows are at most so many groups
    ("SELECT COUNT(*) FROM trips", 1, 3),
    ("SELECT city, COUNT(*) FROM trips GROUP BY city", 3, 3),
    ("SELECT city, COUNT(*) FROM (SELECT city FROM trips UNION ALL SELECT city FROM trips) AS t GROUP BY city", 4, 6),
]
JOINS = [
    # looking units up is no bound, however few rows the other table may have
    ("SELECT COUNT(*) FROM ratings WHERE user IN (SELECT user FROM calls)", 1, 20),
    ("SELECT COUNT(*) FROM ratings WHERE user NOT IN (SELECT user FROM calls WHERE city = 'Bern')", 1, 20),
    ("SELECT COUNT(*) FROM calls WHERE user IN (SELECT user FROM people WHERE age > 30)", 1, 5),
    # nor is a table with one row for each unit, on either side
    ("SELECT COUNT(*) FROM calls JOIN people USING (user)", 1, 5),
    ("SELECT age, COUNT(*) FROM calls JOIN people USING (user) GROUP BY age", 1, 5),
    ("SELECT city, age, COUNT(*) FROM people JOIN calls USING (user) GROUP BY city, age", 2, 5),
    ("SELECT city, COUNT(*) FROM calls LEFT JOIN people USING (user) GROUP BY city", 2, 5),
    (
        "SELECT COUNT(*) FROM calls c JOIN (SELECT user, MIN(day) AS d FROM calls GROUP BY user) f ON c.user = f.user",
        1,
        5,
    ),
    ("SELECT film, COUNT(*) FROM ratings JOIN people USING (user) GROUP BY film", 10, 1),
    ("SELECT COUNT(*) FROM people a JOIN people b ON a.user = b.user", 1, 1),
    ("SELECT film, COUNT(*) FROM ratings JOIN homes USING (user) GROUP BY film", 10, 1),
    # but for rows that match nothing, which are in a group of their own
    ("SELECT age, COUNT(*) FROM calls c LEFT JOIN people p ON c.user = p.user AND c.city = 'x' GROUP BY age", 2, 5),
    ("SELECT age, COUNT(*) FROM calls c LEFT JOIN people p ON c.user = p.user GROUP BY age", 1, 5),
    ("SELECT t.city, COUNT(*) FROM calls c JOIN trips t USING (user) GROUP BY t.city", 3, 15),
    # of two others every pair of rows counts
    ("SELECT COUNT(*) FROM ratings JOIN calls USING (user)", 1, 100),
    ("SELECT COUNT(*) FROM calls a JOIN calls b ON a.user = b.user AND a.day < b.day", 1, 25),
    ("SELECT COUNT(*) FROM calls JOIN trips USING (user)", 1, 15),
    # in as many groups as the side has that the keys are of
    ("SELECT calls.city, COUNT(*) FROM ratings JOIN calls USING (user) GROUP BY calls.city", 2, 100),
    ("SELECT calls.city, stars, COUNT(*) FROM ratings JOIN calls USING (user) GROUP BY ALL", 20, 100),
    # the pair of both unique keys
    ("SELECT film, day, evening, COUNT(*) FROM ratings JOIN diary USING (user) GROUP BY ALL", 100, 1),
]


@pytest.mark.parametrize(("sql", "groups", "rows"), [*FACTS, *JOINS])
def test_what_counts_of_one_unit(sql, groups, rows):
    assert bound(sql) == (groups, rows)


@pytest.mark.parametrize("name", ["ratings", "diary", "people", "trips"])
def test_without_the_facts_it_is_what_the_policy_cuts_to(name):
    plain = replace(SCHEMA.tables[name], unique=(), rows_at_most=None)
    schema = Schema({**SCHEMA.tables, name: plain})
    assert bound(f"SELECT COUNT(*) FROM {name}", schema) == (1, plain.rows)


def test_facts_about_a_hidden_column_count_for_it():
    key = replace(RATINGS, unique=unique(["user", "film", "note"]))
    assert bound("SELECT film, COUNT(*) FROM ratings GROUP BY film", Schema({"ratings": key})) == (10, 20)


@pytest.mark.parametrize("rows", [1, 3])
def test_noise_is_made_for_what_the_fact_leaves(rows):
    trips = replace(TRIPS, rows_at_most=rows)
    budget = QueryBudget(kind="pure", main=Fraction(1), delta=Fraction(0))
    aggregation = bind("SELECT COUNT(*) FROM trips", Schema({"trips": trips})).aggregation
    (noise,) = price(aggregation, budget, Adjacency.ADD_REMOVE).noise
    assert noise.scale == rows


def test_a_question_may_state_up_to_the_product_and_no_more():
    stated = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed={}) COUNT(*) FROM ratings JOIN calls"
    assert bound(stated.format(30) + " USING (user)") == (1, 30)
    assert bound(stated.format(100) + " USING (user)") == (1, 100)
    with pytest.raises(Refused, match="up to 100") as caught:
        bind(stated.format(101) + " USING (user)", SCHEMA)
    assert caught.value.code == "options"
    # a fact makes the bound smaller, and what may be stated is what the policy says
    assert bound("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=5) COUNT(*) FROM people") == (1, 1)


@pytest.mark.parametrize(
    ("facts", "size"),
    [
        (ColumnFacts(name="c", kind=T, keys=("a", "b")), 2),
        (ColumnFacts(name="c", kind=T), None),
        (ColumnFacts(name="c", kind=B), 2),
        (ColumnFacts(name="c", kind=I, between=Interval(Fraction(-1), Fraction(1))), 3),
        (ColumnFacts(name="c", kind=I, between=Interval(Fraction(0), Fraction(10)), step=Fraction(5)), 3),
        (ColumnFacts(name="c", kind=DATE, between=between(10, 10)), 1),
        (ColumnFacts(name="c", kind=Kind.DOUBLE, between=between(0, 1), step=Fraction(1, 4)), 5),
        (ColumnFacts(name="c", kind=Kind.DOUBLE, between=between(0, 1)), None),
        (ColumnFacts(name="c", kind=Kind.TIMESTAMP, between=between(0, 10)), None),
        # bounds that were searched for are about the data
        (ColumnFacts(name="c", kind=I, between=between(0, 3), searched=True), None),
    ],
)
def test_public_values_are_counted(facts, size):
    assert facts.domain == size
