-- unknown_function | “NOW” depends on the clock
SELECT COUNT(*) FROM orders WHERE ts >= NOW() - INTERVAL '7 days'
----
-- unknown_function | like date '2024-01-31'
SELECT COUNT(*) FROM orders WHERE day = CURRENT_DATE
----
-- unknown_function | “CURRENT_TIMESTAMP” depends on the clock
SELECT COUNT(*) FROM orders WHERE ts < CURRENT_TIMESTAMP
----
-- unknown_function | “Current_Timestamp” depends on the clock
SELECT COUNT(*) FROM orders WHERE ts < Current_Timestamp(3)
----
-- unknown_function | “localtimestamp” depends on the clock
SELECT COUNT(*) FROM orders WHERE ts < localtimestamp
----
-- unknown_function | stored answer
SELECT date_trunc('day', now()), COUNT(*) FROM orders GROUP BY 1
----
-- literal | perhaps with a zone
SELECT COUNT(*) FROM orders WHERE ts >= '2024-01-31T10:00:00 Europe/Zurich'
----
-- literal | perhaps with a zone
SELECT COUNT(*) FROM orders WHERE day BETWEEN '2024-01-01T00:00:00Z' AND '2024-02-30T00:00:00Z'
----
-- literal | perhaps with a zone
SELECT COUNT(*) FROM orders WHERE ts >= TIMESTAMPTZ 'yesterday'
----
-- literal | perhaps with a zone
SELECT COUNT(*) FROM orders WHERE ts >= '2024-01-31 24:00:00'
----
-- literal | perhaps with a zone
SELECT COUNT(*) FROM orders WHERE ts >= '31.01.2024 10:00'
----
-- literal | offset
SELECT COUNT(*) FROM orders WHERE ts >= '2024-01-31 10:00:00+16:00'
----
-- literal | offset
SELECT COUNT(*) FROM orders WHERE ts >= '2024-01-31 10:00:00+02:60'
----
-- literal | microsecond
SELECT COUNT(*) FROM orders WHERE ts >= '2024-01-31T10:00:00.0000001Z'
----
-- literal | out of range
SELECT COUNT(*) FROM orders WHERE ts >= '0001-01-01T00:00:00+00:01'
----
-- literal | out of range
SELECT COUNT(*) FROM orders WHERE ts <= timestamptz '9999-12-31 23:59:59-01'
----
-- literal | timestamptz
SELECT COUNT(*) FROM orders WHERE ts >= TIMESTAMP '2024-01-31 10:00:00+02:00'
----
-- literal | timestamptz
SELECT COUNT(*) FROM orders WHERE ts = ANY('{2024-01-31 10:00:00+02}'::timestamp[])
----
-- literal | yyyy-mm-dd
SELECT COUNT(*) FROM orders WHERE day >= DATE '2024-01-31T10:00:00Z'
----
-- types | type of constants only
SELECT COUNT(*) FROM orders WHERE CAST(ts AS TIMESTAMPTZ) IS NULL
----
-- types | type of constants only
SELECT COUNT(*) FROM orders WHERE 5::timestamptz IS NULL
----
-- unsupported | expressions
SELECT COUNT(*) FROM orders WHERE ts > TIMESTAMPTZ(0) '2024-01-31 10:00:00.7'
----
-- types | constant text and its format
SELECT COUNT(*) FROM orders WHERE to_date(product, 'YYYY-MM-DD') = day
----
-- types | constant text and its format
SELECT COUNT(*) FROM orders WHERE ts > to_timestamp(1704067200)
----
-- literal | every digit and mark
SELECT COUNT(*) FROM orders WHERE day = to_date('2024-1-31', 'YYYY-MM-DD')
----
-- literal | every digit and mark
SELECT COUNT(*) FROM orders WHERE day = to_date('2024-01-31 10:00:00', 'YYYY-MM-DD')
----
-- literal | every digit and mark
SELECT COUNT(*) FROM orders WHERE day = to_date('2024-13-01', 'YYYY-MM-DD')
----
-- literal | formats are made of
SELECT COUNT(*) FROM orders WHERE day = to_date('31 Jan 2024', 'DD Mon YYYY')
----
-- literal | formats are made of
SELECT COUNT(*) FROM orders WHERE ts = to_timestamp('2024-01-31 10', 'YYYY-MM-DD HH12')
----
-- literal | twice
SELECT COUNT(*) FROM orders WHERE day = to_date('2024-01-31-31', 'YYYY-MM-DD-DD')
----
-- literal | leaves out
SELECT COUNT(*) FROM orders WHERE day = to_date('01-31', 'MM-DD')
----
-- literal | no time of day
SELECT COUNT(*) FROM orders WHERE day = to_date('2024-01-31 10', 'YYYY-MM-DD HH24')
----
-- unsupported | any can't stand here
SELECT COUNT(*) FROM orders WHERE quantity > ANY(ARRAY[1, 2])
----
-- unsupported | all can't stand here
SELECT COUNT(*) FROM orders WHERE quantity = ALL(ARRAY[1, 2])
----
-- subquery | list of constants
SELECT COUNT(*) FROM orders WHERE quantity = ANY(score)
----
-- subquery | list of constants
SELECT COUNT(*) FROM orders WHERE product = ANY(ARRAY(SELECT product FROM products))
----
-- subquery | use in
SELECT COUNT(*) FROM orders WHERE product = ANY(SELECT product FROM products)
----
-- literal | matches nothing
SELECT COUNT(*) FROM orders WHERE product = ANY('{}')
----
-- literal | matches nothing
SELECT COUNT(*) FROM orders WHERE product = ANY('{a,NULL}')
----
-- literal | isn't a list
SELECT COUNT(*) FROM orders WHERE product = ANY('{a,}')
----
-- literal | isn't a list
SELECT COUNT(*) FROM orders WHERE product = ANY('{{a},{b}}')
----
-- literal | isn't a list
SELECT COUNT(*) FROM orders WHERE product = ANY('a,b')
----
-- literal | read as integer
SELECT COUNT(*) FROM orders WHERE quantity = ANY('{1,x}')
----
-- literal | read as integer
SELECT COUNT(*) FROM orders WHERE amount = ANY('{1.5}'::int[])
----
-- literal | read as integer
SELECT COUNT(*) FROM orders WHERE quantity = ANY('{1_0}')
----
-- literal | read as double
SELECT COUNT(*) FROM orders WHERE amount = ANY('{nan}')
----
-- literal | read as boolean
SELECT COUNT(*) FROM orders WHERE coupon = ANY(ARRAY['maybe']::boolean[])
----
-- types | type of array
SELECT COUNT(*) FROM orders WHERE quantity = ANY('{1}'::json[])
----
-- types | type of array
SELECT COUNT(*) FROM orders WHERE product = ANY(ARRAY['abc']::varchar(2)[])
----
-- types | one kind
SELECT COUNT(*) FROM orders WHERE product = ANY(ARRAY[1, 2])
----
-- literal | %Y
SELECT strftime(day, '%c'), COUNT(*) FROM bookings GROUP BY 1
----
-- literal | %Y
SELECT strftime(day, 'year %'), COUNT(*) FROM bookings GROUP BY 1
----
-- literal | %Y
SELECT strftime(day, 'year'), COUNT(*) FROM bookings GROUP BY 1
----
-- types | %Y
SELECT strftime(score, '%Y'), COUNT(*) FROM bookings GROUP BY 1
----
-- types | %Y
SELECT strftime(day, strftime(ts, '%Y')), COUNT(*) FROM bookings GROUP BY 1
