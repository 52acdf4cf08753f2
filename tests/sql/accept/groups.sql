-- keys=public groups=2 values=False,True
SELECT coupon, COUNT(*) FROM orders GROUP BY coupon
----
-- keys=public values=high,low
SELECT CASE WHEN amount > 50 THEN 'high' ELSE 'low' END AS band, COUNT(*) FROM orders GROUP BY band
----
-- keys=public values=high,None groups=2
SELECT CASE WHEN amount > 50 THEN 'high' END AS band, COUNT(*) FROM orders GROUP BY 1
----
-- keys=public values=1,2,3,4,5,6,7,8,9,10,11,12
SELECT EXTRACT(month FROM day) AS m, COUNT(*) FROM orders GROUP BY m ORDER BY m
----
-- keys=public size=24
SELECT hour(ts), COUNT(*) FROM orders GROUP BY hour(ts)
----
-- keys=public values=0.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0,10.0
SELECT floor(amount / 10) AS bin, COUNT(*) FROM orders GROUP BY bin
----
-- keys=public values=0.0,20.0,40.0,60.0,80.0,100.0
SELECT floor(amount / 20) * 20 AS bin, COUNT(*) FROM orders GROUP BY 1
----
-- keys=public values=0,1,2,3,4
SELECT quantity // 5, COUNT(*) FROM orders GROUP BY 1
----
-- keys=public size=21
SELECT quantity, COUNT(*) FROM orders GROUP BY quantity
----
-- keys=public values=BERN,GRAZ,LYON,OSLO
SELECT upper(city), COUNT(*) FROM orders GROUP BY upper(city)
----
-- keys=public values=?,Bern,Graz,Lyon,Oslo
SELECT coalesce(city, '?') AS c, COUNT(*) FROM orders GROUP BY c
----
-- keys=public values=B,G,L,O
SELECT left(city, 1), COUNT(*) FROM orders GROUP BY left(city, 1)
----
-- keys=public values=False,True
SELECT amount > 50, COUNT(*) FROM orders GROUP BY amount > 50
----
-- keys=public size=8 groups=4
SELECT city, coupon, COUNT(*) FROM orders GROUP BY city, coupon
----
-- keys=discovered
SELECT city, product, COUNT(*) FROM orders GROUP BY 1, 2
----
-- keys=discovered
SELECT date_trunc('month', day) AS m, COUNT(DISTINCT user_id) FROM orders GROUP BY m
----
-- keys=discovered
SELECT year(day) AS y, COUNT(*) FROM orders GROUP BY ALL
----
-- keys=discovered
SELECT user_id % 10000 + score AS bucket, COUNT(*) FROM orders GROUP BY bucket
----
-- keys=discovered groups=2
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=LAPLACE_THRESHOLD, max_groups_contributed=2) city, COUNT(*) FROM orders GROUP BY city
----
-- keys=public groups=4
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS) city, COUNT(*) FROM orders GROUP BY city
----
-- keys=public groups=4
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(noise='laplace', group_selection_strategy=PUBLIC_GROUPS) city, COUNT(*) FROM orders GROUP BY city
----
-- epsilon=1/2 delta=1/1000000 groups=1 rows=2
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0.5, delta=1e-6, max_groups_contributed=1, max_rows_contributed=2, privacy_unit_column=user_id) product, SUM(amount) FROM orders GROUP BY product
----
-- keys=public
SELECT WITH DIFFERENTIAL_PRIVACY city, COUNT(*) FROM orders GROUP BY city
----
-- keys=public columns=city,n limit=1000
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0.5) city, COUNT(*) AS n FROM orders GROUP BY city) AS x LIMIT 1000
----
-- epsilon=1
WITH t AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) city, COUNT(*) AS n FROM orders GROUP BY city) SELECT city, n * 2 AS m FROM t ORDER BY m DESC
----
-- explain=True
EXPLAIN PRIVACY SELECT COUNT(*) FROM orders
----
-- keys=public values=1,2,3,4,5,6,7
SELECT isodow(day) AS weekday, AVG(amount) FROM orders GROUP BY weekday HAVING COUNT(*) > 10 ORDER BY 2 DESC LIMIT 3
----
-- columns=city,n limit=2
SELECT city, n FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) WHERE n > 5 ORDER BY n DESC LIMIT 2
----
-- limit=2 offset=3
SELECT * FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY n LIMIT 5 OFFSET 2) LIMIT 2 OFFSET 1
----
-- columns=total,lo
SELECT total, DP_INTERVAL_LOW(total) AS lo FROM (SELECT SUM(amount) AS total FROM orders) AS t
----
-- keys=public columns=CITY,N
select "city" as "CITY", count(*) "N" from ORDERS group by "CITY"
----
-- columns=Mark,count
SELECT mark AS "Mark", COUNT(*) FROM exams GROUP BY mark;
----
-- columns=city,n
FROM orders SELECT city, COUNT(*) AS n GROUP BY city
----
-- keys=public
SELECT city, COUNT(*) FROM orders GROUP BY city HAVING SUM(amount) > 100 AND DP_INTERVAL_LOW(SUM(amount)) > 0 ORDER BY SUM(amount) DESC NULLS FIRST
----
-- keys=public columns=k,n
SELECT t.k, t.n FROM (SELECT city, COUNT(*) FROM orders GROUP BY city) AS t(k, n)
----
-- keys=public values=Bern,Graz,Lyon,Oslo aggs=
SELECT city FROM orders GROUP BY city
----
-- keys=public values=Bern,Graz,Lyon,Oslo aggs= columns=city
SELECT DISTINCT city FROM orders
----
-- keys=public values=2024 aggs= size=1
SELECT DISTINCT year(day) AS y FROM bookings WHERE day > DATE '2024-01-01'
----
-- keys=public groups=1 rows=1 units=column aggs=count_units size=16 tables=orders columns=rows_from,rows_to,units
PROFILE orders AS o WHERE o.city = 'Bern'
----
-- keys=public groups=1 explain=True
explain privacy profile (SELECT user_id, day FROM orders) AS d;
----
-- keys=public groups=4 aggs=count,sum
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 'auto', max_groups_contributed = 'auto') city, COUNT(*), SUM(amount) FROM orders GROUP BY city
