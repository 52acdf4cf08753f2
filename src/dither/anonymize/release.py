"""The released table: what is printed for every class, and everything its owner may want to know about it.

**What a cell of a quasi-identifier says.** Every quasi-identifier becomes a column of text (dictionary-encoded), the
same for all rows of a class. The text is one of

=================  ==================================================================================================
``23``             the value itself: numbers and dates as Arrow writes them, text unchanged
``20–29``          a number, date or ordered value from 20 to 29, both included; the dash is an en dash (U+2013), so
                   that ``-5–-3`` and ``2001-01-01–2001-12-31`` can't be misread
``{a, b, c}``      one of these categories
``{20–29, NULL}``  a value in that range, or none; ``{a, NULL}`` likewise
NULL               a missing value, and nothing else (an empty field in a CSV file)
``*``              any value, or none
any other text     the label that the column's hierarchy has for the value, as the hierarchy spells it
=================  ==================================================================================================

In a set or a range, a value that is empty, is ``*`` or ``NULL``, begins or ends with a space, or contains one of
``{ } , " –`` is written as a JSON string (``{"a, b", c}``). Standing alone, a value is written as a JSON string only
if it is empty, is ``*``, begins with ``{`` or ``"``, or contains ``–``. Labels of hierarchies are never quoted.

**Which rows.** Identifying columns are gone. Rows of suppressed people are left out. Rows are ordered by what they
say (by class, then by the other columns), never as they came: the order of the original table is often that of names
or of dates, and would tell people of one class apart. ``Release.rows`` has the original position of every row; it is
for the owner, and isn't part of the table.

k-anonymity and its kin claim no privacy loss: they limit what one kind of attacker learns from one table, and say
nothing about two releases or about what else is known.
"""
