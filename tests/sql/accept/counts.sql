-- keys=none groups=1 rows=10 units=column aggs=count
SELECT COUNT(*) FROM orders
----
-- keys=public groups=4 aggs=count columns=city,n
SELECT city, COUNT(*) AS n FROM orders GROUP BY city
----
-- keys=discovered groups=4 aggs=count
SELECT product, COUNT(*) FROM orders GROUP BY product
----
-- aggs=count_units arguments=0
SELECT COUNT(DISTINCT user_id) FROM orders
----
-- aggs=count_units arguments=1
SELECT COUNT(DISTINCT user_id) FILTER (WHERE coupon) FROM orders
----
-- aggs=count_units arguments=1
SELECT COUNT(DISTINCT CASE WHEN amount > 50 THEN user_id END) FROM orders
----
-- aggs=count_distinct
SELECT COUNT(DISTINCT product) FROM orders
----
-- aggs=count_distinct
SELECT approx_count_distinct(lower(product)) FROM orders
----
-- aggs=count arguments=1
SELECT COUNT(score) FROM orders
----
-- aggs=count arguments=0
SELECT COUNT(1) FROM orders
----
-- aggs=count arguments=1
SELECT COUNT(user_id) FROM orders
----
-- aggs=count arguments=1
SELECT COUNT(*) FILTER (WHERE amount > 10) FROM orders
----
-- aggs=count arguments=1
SELECT COUNT_IF(amount > 10) FROM orders
----
-- aggs=count arguments=1
SELECT SUM(coupon) FROM orders
----
-- aggs=count
SELECT COUNT(*, contribution_bounds_per_group => (0, 5)) FROM orders
----
-- aggs=count
SELECT COUNT(*, weight => 2) AS n FROM orders
----
-- keys=discovered aggs= columns=product
SELECT product FROM orders GROUP BY product
----
-- keys=discovered aggs= columns=product
SELECT DISTINCT product FROM orders
----
-- units=row groups=1 rows=1 keys=public
SELECT page, COUNT(*) FROM visits GROUP BY page
----
-- units=row groups=1 rows=1 keys=discovered
SELECT product, COUNT(*) FROM visits GROUP BY product
----
-- aggs=count arguments=0
SELECT COUNT(*) FROM orders WHERE product NOT LIKE 'a%'
----
-- aggs=count arguments=0
SELECT COUNT(*) FROM orders WHERE product NOT ILIKE 'a%' AND product !~~ 'b%' AND product !~~* 'c%'
----
-- aggs=count arguments=0
SELECT COUNT(*) FROM orders WHERE product IS NOT NULL AND coupon IS NOT TRUE AND city IS NOT DISTINCT FROM 'Bern'
----
-- aggs=sum,count arguments=1
SELECT SUM(CASE product WHEN 'a' THEN CAST(amount AS DECIMAL(9, 2)) END, contribution_bounds_per_row := (0, 5)), COUNT(*)
FROM orders WHERE amount <= 50 AND TRY_CAST(product AS INTEGER) > 1 AND trim(LEADING FROM product) <> 'x'
AND substring(product FROM 2 FOR 3) = 'abc' AND position('a' IN product) = 1 AND quantity % 2 = 0
----
-- aggs=count arguments=0
WITH big AS MATERIALIZED (SELECT user_id, amount FROM orders) SELECT COUNT(*) FROM ((SELECT * FROM big) UNION ALL
(SELECT user_id, amount FROM orders ORDER BY amount)) AS both
