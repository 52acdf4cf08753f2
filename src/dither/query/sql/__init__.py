"""The front door: SQL text becomes a bound question, or is refused for public reasons.

``bind`` reads no data and raises nothing but ``Refused``. Analyst text ends here: names are resolved against the
schema, relations and expressions are rebuilt in the plan's own language, and of the text only typed literals survive.
"""

from dither.query.refusals import CODES
from dither.query.sql.queries import bind, bind_with_form

__all__ = ["CODES", "bind", "bind_with_form"]
