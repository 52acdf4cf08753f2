-- keys=public values=2023,2024 groups=2
SELECT year(day) AS y, COUNT(*) AS n FROM bookings GROUP BY y ORDER BY y
----
-- keys=public values=2023-12-01,2024-01-01,2024-02-01 groups=3
SELECT date_trunc('month', day) AS m, COUNT(*) FROM bookings GROUP BY m
----
-- keys=public size=48 groups=4
SELECT day, COUNT(*), AVG(seconds) FROM bookings GROUP BY day
----
-- keys=public size=48
SELECT CAST(ts AS DATE) AS d, COUNT(*) FROM bookings GROUP BY d
----
-- keys=public size=1152
SELECT date_trunc('hour', ts) AS h, COUNT(*) FROM bookings GROUP BY h
----
-- keys=public values=1,2,12 size=3
SELECT EXTRACT(month FROM ts) AS m, COUNT(*) FROM bookings GROUP BY m
----
-- keys=public values=1,2,3,4,5,52 size=6
SELECT week(day) AS w, COUNT(*) FROM bookings WHERE day < DATE '2024-02-04' GROUP BY w
----
-- keys=public values=2024-01-01,2024-02-01 groups=2
SELECT date_trunc('month', day) AS m, COUNT(*) FROM bookings WHERE day >= DATE '2024-01-01' AND day < DATE '2024-03-01' GROUP BY m
----
-- keys=public values=2024-01-06,2024-01-07,2024-01-08
SELECT day, COUNT(*) FROM bookings WHERE day BETWEEN '2024-01-06' AND '2024-01-08' GROUP BY day
----
-- keys=public values=6,7 size=2
SELECT isodow(day) AS d, COUNT(*) FROM bookings WHERE isodow(day) > 5 GROUP BY d
----
-- keys=public values=1,2 size=2
SELECT month(day) AS m, COUNT(*) FROM bookings WHERE year(day) = 2024 GROUP BY m
----
-- keys=public values=9,10,11 size=3
SELECT hour(ts) AS h, COUNT(*) FROM bookings WHERE ts >= TIMESTAMP '2024-01-05 09:30:00' AND ts < TIMESTAMP '2024-01-05 12:00:00' GROUP BY h
----
-- keys=public size=71
SELECT score, COUNT(*) FROM bookings GROUP BY score
----
-- keys=public values=-1,0,1,2 groups=4
SELECT score, COUNT(*) FROM bookings WHERE score > -2 AND score < 3 GROUP BY score
----
-- keys=public size=121
SELECT seconds, COUNT(*) FROM bookings GROUP BY seconds
----
-- keys=public values=0.0,0.5,1.0
SELECT seconds, COUNT(*) FROM bookings WHERE seconds <= 1 GROUP BY seconds
----
-- keys=public values=high,low size=2
SELECT CASE WHEN day >= DATE '2024-01-15' THEN 'high' ELSE 'low' END AS half, COUNT(*) FROM bookings GROUP BY half
----
-- keys=discovered size=0
SELECT ts, COUNT(*) FROM bookings GROUP BY ts
----
-- keys=discovered
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=LAPLACE_THRESHOLD) year(day) AS y, COUNT(*) FROM bookings GROUP BY y
----
-- keys=public values=2023,2024
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS) year(day) AS y, COUNT(*) FROM bookings GROUP BY y
----
-- keys=public values=2023-12,2024-01,2024-02
SELECT strftime(day, '%Y-%m') AS m, COUNT(*) FROM bookings GROUP BY m
----
-- keys=public values=Friday,Monday,Saturday,Sunday,Thursday,Tuesday,Wednesday
SELECT dayname(day) AS d, COUNT(*) FROM bookings GROUP BY d
----
-- keys=public values=December,February,January
SELECT monthname(ts) AS m, COUNT(*) FROM bookings GROUP BY m
