"""The tables that the SQL tests ask about: a shop protected by user, visits protected row by row."""

from fractions import Fraction

from dither.query.kinds import Auto, Interval, Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts

CITIES = ("Bern", "Graz", "Lyon", "Oslo")
AGES = ("18-29", "30-49", "50+")


def column(name, kind, **facts):
    return ColumnFacts(name=name, kind=kind, **facts)


def table(name, *columns, private=True, **facts):
    return TableFacts(name=name, private=private, columns={c.name: c for c in columns}, **facts)


def between(low, high):
    return Interval(Fraction(low), Fraction(high))


ORDERS = table(
    "orders",
    column("user_id", Kind.INTEGER),
    column("order_id", Kind.INTEGER),
    column("city", Kind.TEXT, keys=CITIES),
    column("product", Kind.TEXT),
    column("day", Kind.DATE),
    column("ts", Kind.TIMESTAMP),
    column("amount", Kind.DOUBLE, between=between(0, 100), step=Fraction(1, 100)),
    column("quantity", Kind.INTEGER, between=between(0, 20)),
    column("coupon", Kind.BOOLEAN),
    column("note", Kind.TEXT, hidden=True),
    column("rating", Kind.DOUBLE, between=Auto.AUTO),
    column("score", Kind.INTEGER),
    unit_column="user_id",
    groups=4,
    rows=10,
)
USERS = table(
    "users",
    column("user_id", Kind.INTEGER),
    column("age_group", Kind.TEXT, keys=AGES),
    column("country", Kind.TEXT),
    column("birth", Kind.DATE),
    unit_column="user_id",
    groups=2,
    rows=5,
)
# a public fact: nobody has two homes
HOMES = table(
    "homes",
    column("user_id", Kind.INTEGER),
    column("region", Kind.TEXT, keys=("north", "south")),
    column("rooms", Kind.INTEGER, between=between(0, 9)),
    unit_column="user_id",
    groups=3,
    rows=6,
    rows_at_most=1,
)
CLICKS = table(
    "clicks",
    column("visitor", Kind.INTEGER),
    column("page", Kind.TEXT),
    column("seconds", Kind.DOUBLE, between=between(0, 600)),
    unit_column="visitor",
    groups=3,
    rows=8,
)
PRODUCTS = table(
    "products",
    column("product", Kind.TEXT),
    column("category", Kind.TEXT, keys=("book", "toy")),
    column("price", Kind.DOUBLE, between=between(0, 50)),
    private=False,
    unique=(frozenset({"product"}),),
)
HOLIDAYS = table("holidays", column("day", Kind.DATE), column("name", Kind.TEXT), private=False)
VISITS = table(
    "visits",
    column("id", Kind.INTEGER),
    column("page", Kind.TEXT, keys=("home", "shop")),
    column("product", Kind.TEXT),
    column("day", Kind.DATE),
    column("seconds", Kind.DOUBLE, between=between(0, 600), step=Fraction(1)),
    groups=5,
    rows=7,
)
LOGINS = table("logins", column("day", Kind.DATE), column("seconds", Kind.DOUBLE, between=between(0, 60)))
MEMBERS = table("members", column("user_id", Kind.TEXT), column("since", Kind.DATE), unit_column="user_id")
MIXED_CASE = table(
    "Exams", column("Pupil", Kind.INTEGER), column("Mark", Kind.INTEGER, between=between(1, 6)), unit_column="Pupil"
)
# From Christmas 2023 (19,716 days after 1970) to 10 February 2024, both included: some rows lie outside.
BOOKINGS = table(
    "bookings",
    column("user_id", Kind.INTEGER),
    column("day", Kind.DATE, between=between(19_716, 19_763)),
    column("ts", Kind.TIMESTAMP, between=between(19_716 * 86_400_000_000, 19_764 * 86_400_000_000 - 1)),
    column("seconds", Kind.DOUBLE, between=between(0, 60), step=Fraction(1, 2)),
    column("score", Kind.INTEGER, between=between(-20, 50)),
    unit_column="user_id",
    groups=4,
    rows=10,
)

_TABLES = (ORDERS, USERS, HOMES, CLICKS, PRODUCTS, HOLIDAYS, VISITS, LOGINS, MEMBERS, MIXED_CASE, BOOKINGS)
SHOP = Schema({t.name: t for t in _TABLES})
