-- tables=orders,users groups=2 rows=50 keys=public
SELECT age_group, SUM(amount) FROM orders o JOIN users u ON o.user_id = u.user_id GROUP BY age_group
----
-- tables=orders,users
SELECT u.age_group, AVG(o.amount) FROM orders AS o JOIN users AS u USING (user_id) GROUP BY u.age_group
----
-- tables=orders,users values=18-29,30-49,50+,None
SELECT age_group, COUNT(*) FROM orders o LEFT JOIN users u ON o.user_id = u.user_id GROUP BY age_group
----
-- tables=clicks,orders groups=1 rows=80
SELECT COUNT(*) FROM orders o JOIN clicks c ON c.visitor = o.user_id AND c.seconds > 10
----
-- tables=orders,users
SELECT COUNT(*) FROM orders o, users u WHERE o.user_id = u.user_id AND u.country = 'CH'
----
-- tables=orders
SELECT COUNT(*) FROM orders a JOIN orders b ON a.user_id = b.user_id AND a.day < b.day
----
-- tables=orders values=book,toy keys=public
SELECT category, COUNT(*) FROM orders JOIN products USING (product) GROUP BY category
----
-- tables=orders values=book,toy,None
SELECT category, COUNT(*) FROM orders o LEFT JOIN products p ON o.product = p.product GROUP BY category
----
-- tables=orders
SELECT category, COUNT(*) FROM products p JOIN orders o ON o.product = p.product GROUP BY category
----
-- tables=orders
SELECT category, COUNT(*) FROM products p RIGHT JOIN orders o ON o.product = p.product GROUP BY category
----
-- tables=orders
SELECT COUNT(*) FROM orders, holidays WHERE orders.day = holidays.day
----
-- tables=orders
SELECT COUNT(*) FROM orders CROSS JOIN products WHERE price < amount
----
-- units=row tables=visits groups=1
SELECT category, COUNT(*) FROM visits v JOIN products p ON v.product = p.product GROUP BY category
----
-- units=row tables=visits
SELECT COUNT(*) FROM visits v LEFT JOIN products p ON p.product = v.product AND p.price > 3
----
-- units=row
SELECT COUNT(*) FROM visits v JOIN (SELECT product, category FROM products WHERE price > 3) p ON p.product = v.product
----
-- units=row
SELECT COUNT(*) FROM visits WHERE day IN (SELECT day FROM holidays)
----
-- units=row
SELECT COUNT(*) FROM visits WHERE day NOT IN (SELECT DISTINCT day FROM holidays WHERE name LIKE 'N%')
----
-- units=row tables=logins,visits
SELECT AVG(seconds) FROM (SELECT seconds FROM visits UNION ALL SELECT seconds FROM logins) t
----
-- tables=orders
SELECT COUNT(*) FROM orders WHERE product IN (SELECT product FROM products WHERE category = 'toy') AND amount > 1
----
-- tables=orders,users groups=1 rows=10
SELECT COUNT(*) FROM orders WHERE user_id IN (SELECT user_id FROM users WHERE country = 'CH')
----
-- tables=orders,users
SELECT COUNT(*) FROM orders WHERE user_id NOT IN (SELECT user_id FROM users)
----
-- tables=orders
SELECT COUNT(DISTINCT user_id) FROM orders WHERE user_id IN (SELECT user_id FROM orders GROUP BY user_id HAVING COUNT(*) > 3)
----
-- tables=orders bounds=0:500
SELECT AVG(total, contribution_bounds_per_row => (0, 500)) FROM (SELECT user_id, SUM(amount) AS total FROM orders GROUP BY user_id) t
----
-- tables=orders bounds=0:100 keys=public
SELECT city, AVG(a) FROM (SELECT user_id, city, AVG(amount) AS a FROM orders GROUP BY user_id, city HAVING COUNT(*) > 2) t GROUP BY city
----
-- tables=orders keys=discovered
SELECT n, COUNT(*) AS users FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY 1) t GROUP BY n
----
-- tables=orders bounds=0:20
SELECT AVG(m) FROM (SELECT user_id, MAX(quantity) AS m, MIN(day) AS first FROM orders GROUP BY user_id) t WHERE first > DATE '2024-01-01'
----
-- tables=orders
WITH big AS (SELECT * FROM orders WHERE amount > 50), few AS (SELECT city, amount FROM big) SELECT city, SUM(amount) FROM few GROUP BY city
----
-- tables=orders bounds=0:100
WITH orders AS (SELECT user_id, amount FROM orders WHERE coupon) SELECT SUM(amount) FROM orders
----
-- tables=clicks,orders
SELECT COUNT(DISTINCT u) FROM (SELECT user_id AS u, day FROM orders UNION ALL SELECT visitor, CAST(NULL AS DATE) FROM clicks) t
----
-- tables=orders
SELECT COUNT(*) FROM (SELECT DISTINCT city, product FROM orders) t
----
-- tables=orders
SELECT AVG(amount) FROM (SELECT amount, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts DESC) AS r FROM orders) t WHERE r = 1
----
-- tables=orders
SELECT AVG(amount) FROM (SELECT amount FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id, city ORDER BY ts) = 1) t
----
-- tables=orders
SELECT AVG(gap, contribution_bounds_per_row => (0, 365)) FROM (SELECT date_diff('day', LAG(day) OVER w, day) AS gap FROM orders WINDOW w AS (PARTITION BY user_id ORDER BY day)) t
----
-- tables=orders
SELECT COUNT(*) FROM (SELECT SUM(amount) OVER (PARTITION BY user_id ORDER BY day) AS run FROM orders) t WHERE run > 100
----
-- tables=orders
SELECT COUNT(*) FROM orders WHERE day >= '2024-01-01' AND day < DATE '2024-01-01' + INTERVAL 3 MONTH AND ts < TIMESTAMP '2024-05-01 12:00:00'
----
-- tables=orders
SELECT COUNT(*) FROM orders WHERE product LIKE '%x%' OR product ILIKE 'a_' OR product IS NULL OR starts_with(product, 'b') OR product IS DISTINCT FROM city
----
-- tables=orders
SELECT COUNT(*) FROM orders WHERE trim(product) || '!' = 'x''y!' AND NOT (coupon IS TRUE) AND score NOT BETWEEN 1 AND 3 AND city IN ('Bern', 'Oslo')
----
-- tables=orders
/* a comment; with a semicolon */ SELECT COUNT(*) -- another
FROM orders WHERE user_id <> 7
----
-- tables=orders,users bounds=0:100
SELECT AVG(t.a) FROM users u JOIN (SELECT user_id, AVG(amount) AS a FROM orders GROUP BY user_id) t ON t.user_id = u.user_id WHERE u.age_group = '50+'
----
-- tables=orders
SELECT SUM(if(coupon, quantity, 0)), SUM(nullif(quantity, 3)), SUM(abs(quantity - 10)), SUM(mod(quantity, 3)) FROM orders
----
-- tables=homes groups=1 rows=1
SELECT region, COUNT(*), SUM(rooms) FROM homes GROUP BY region
----
-- tables=homes,orders groups=1 rows=10
SELECT region, COUNT(*) FROM orders JOIN homes USING (user_id) GROUP BY region
----
-- tables=homes,orders groups=4 rows=10 keys=public
SELECT city, AVG(amount) FROM homes JOIN orders USING (user_id) WHERE rooms > 2 GROUP BY city
----
-- tables=homes,orders groups=4 rows=10
SELECT product, COUNT(*) FROM orders WHERE user_id IN (SELECT user_id FROM homes WHERE rooms > 2) GROUP BY product
----
-- tables=orders groups=1 rows=25
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=25) COUNT(*) FROM orders a JOIN orders b ON a.user_id = b.user_id
