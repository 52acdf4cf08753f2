-- keys=discovered aggs=count columns=time,count
SELECT day AS "time", COUNT(*) FROM orders WHERE day BETWEEN '2024-01-01T00:00:00Z' AND '2024-06-01T00:00:00Z' GROUP BY 1 ORDER BY 1
----
-- keys=none aggs=count columns=count
SELECT COUNT(*) AS "count" FROM orders WHERE orders.ts >= timestamp with time zone '2024-01-01 00:00:00.000Z' AND orders.ts < timestamp with time zone '2024-02-01 00:00:00.000+02:00'
----
-- keys=discovered aggs=avg
SELECT DATE_TRUNC('day', ts) AS __timestamp, AVG(amount) AS "AVG(amount)" FROM orders WHERE ts >= TO_TIMESTAMP('2024-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND ts < TO_TIMESTAMP('2024-02-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('day', ts) LIMIT 50000
----
-- keys=discovered aggs=count
SELECT DATE_TRUNC('day', day) AS __timestamp, COUNT(*) FROM orders WHERE day >= TO_DATE('2024-01-01', 'YYYY-MM-DD') AND day < TO_DATE('2024-02-01', 'YYYY-MM-DD') GROUP BY 1
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-31T23:59:59.999Z'
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts > TIMESTAMPTZ '2024-01-01 00:00:00' AND ts < '2024-01-31 00:00:00+01'::timestamptz
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts < CAST('2024-01-31T00:00:00.0000000-0530' AS TIMESTAMP WITH TIME ZONE)
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts < CAST(NULL AS TIMESTAMPTZ)
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE day >= DATE '2024-01-31'::timestamptz
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE day >= TIMESTAMP '2024-01-31 12:00:00' OR day = '2024-01-31 12:00:00'
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts = TIMESTAMP '2024-01-31T12:00:00Z'
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts >= to_timestamp('31/01/2024 at 10', 'dd/mm/yyyy" at "hh24')
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE ts >= to_timestamp('2024-01-31T10:00:00.123', 'YYYY-MM-DD"T"HH24:MI:SS.MS') + INTERVAL 1 DAY
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE day >= to_date('20240131', 'YYYYMMDD') AND day < to_date('2025', 'YYYY')
----
-- keys=public values=Bern,Graz,Lyon,Oslo aggs=count
SELECT city, COUNT(*) FROM orders WHERE city = ANY (ARRAY['Bern', 'Oslo']) GROUP BY city
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE product = ANY(ARRAY['a', 'b']::varchar[]) AND quantity = SOME(ARRAY[1, -2]) AND score <> ALL((ARRAY[3, 4]::bigint[]))
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE product = ANY('{a, "b \" c"}'::text[]) OR quantity = ANY('{1,2}') OR amount = ANY('{1.5,-2e1,3}') OR coupon = ANY('{t,false}')
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE day = ANY(ARRAY['2024-01-31', '2024-02-01']::date[]) OR ts = ANY('{"2024-01-31T00:00:00+02:00"}'::timestamptz[]) OR day = ANY('{2024-01-31}')
----
-- aggs=count
SELECT COUNT(*) FROM orders WHERE quantity = ANY(ARRAY[1, score])
