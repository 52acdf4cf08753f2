-- rows_shown | aggregates
SELECT * FROM orders
----
-- rows_shown | aggregates
SELECT city FROM orders WHERE user_id = 3
----
-- unit_shown | over the units
WITH t AS (SELECT user_id, SUM(amount) FROM orders GROUP BY user_id) SELECT * FROM t
----
-- rows_shown | name the columns
SELECT *, COUNT(*) FROM orders GROUP BY city
----
-- public_only | private
SELECT * FROM products
----
-- public_only | private
SELECT category, COUNT(*) FROM products GROUP BY category
----
-- public_only | from
SELECT 1
----
-- nothing_to_ask | count(*)
SELECT 1 AS one FROM orders HAVING 2 > 1
----
-- not_grouped | group by
SELECT product, COUNT(*) FROM orders GROUP BY city
----
-- not_grouped | group by
SELECT city, COUNT(*) FROM orders
----
-- not_grouped | group by
SELECT COUNT(*) FROM orders HAVING amount > 3
----
-- aggregate | quantile
SELECT MAX(amount) FROM orders
----
-- aggregate | quantile
SELECT MIN(user_id) FROM orders
----
-- aggregate | private form
SELECT ARRAY_AGG(product) FROM orders
----
-- aggregate | private form
SELECT STRING_AGG(product, ',') FROM orders
----
-- aggregate | private form
SELECT ANY_VALUE(product) FROM orders
----
-- aggregate | having
SELECT COUNT(*) FROM orders WHERE SUM(amount) > 3
----
-- aggregate | count
SELECT SUM(DISTINCT amount) FROM orders
----
-- aggregate | can't stand here
SELECT SUM(COUNT(*)) FROM orders
----
-- aggregate | public values
SELECT MODE(product) FROM orders
----
-- aggregate | group key
SELECT COUNT(*) AS n FROM orders GROUP BY n
----
-- aggregate | per unit
SELECT AVG(m) FROM (SELECT user_id, MEDIAN(amount) AS m FROM orders GROUP BY user_id) t
----
-- aggregate | order
SELECT SUM(amount ORDER BY day) FROM orders
----
-- bounds_missing | column score of orders
SELECT SUM(score) FROM orders
----
-- bounds_missing | between = [low, high]
SELECT AVG(score + 1) FROM orders
----
-- bounds_missing | between
SELECT AVG(rating * score) FROM orders
----
-- bounds_missing | between
SELECT MEDIAN(score) FROM orders
----
-- bounds_missing | between
SELECT AVG(1 / amount) FROM orders
----
-- bounds_missing | contribution_bounds_per_row
SELECT AVG(t) FROM (SELECT user_id, SUM(amount) AS t FROM orders GROUP BY user_id) x
----
-- bounds_missing | clamp
SELECT COUNT(t) FROM (SELECT user_id, SUM(score) AS t FROM orders GROUP BY user_id) x
----
-- bounds_wider | narrower
SELECT SUM(amount, contribution_bounds_per_row => (0, 101)) FROM orders
----
-- bounds_wider | narrower
SELECT SUM(amount, contribution_bounds_per_group => (0, 1001)) FROM orders
----
-- bounds_wider | at most (0, 10)
SELECT COUNT(*, contribution_bounds_per_group => (0, 11)) FROM orders
----
-- bounds_wider | at most (0, 1)
SELECT COUNT(*, contribution_bounds_per_group => (0, 2)) FROM visits
----
-- unit_shown | count(distinct
SELECT SUM(user_id, contribution_bounds_per_row => (0, 9)) FROM orders
----
-- unit_shown | mode
SELECT MODE(user_id) FROM orders
----
-- unit_shown | over the units
SELECT user_id, COUNT(*) FROM orders GROUP BY user_id
----
-- second_aggregation | more exact
SELECT SUM(n) FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t
----
-- second_aggregation | separately
SELECT COUNT(*) FROM orders UNION ALL SELECT COUNT(*) FROM users
----
-- second_aggregation | separately
SELECT COUNT(*) FROM orders o JOIN (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t ON o.city = t.city
----
-- second_aggregation | separately
SELECT COUNT(*) FROM orders WHERE product IN (SELECT product FROM orders GROUP BY product)
----
-- post_processing | limit
SELECT * FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city LIMIT 3) t WHERE n > 3
----
-- post_processing | distinct
SELECT DISTINCT n FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t
----
-- post_processing | windows
SELECT city, RANK() OVER (ORDER BY n) FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t
----
-- subquery | between ands
SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)
----
-- subquery | between ands
SELECT COUNT(*) FROM orders WHERE EXISTS (SELECT 1 FROM users)
----
-- subquery | between ands
SELECT (SELECT COUNT(*) FROM users) FROM orders
----
-- subquery | and
SELECT COUNT(*) FROM orders WHERE coupon OR product IN (SELECT product FROM products)
----
-- subquery | unit in
SELECT COUNT(*) FROM orders WHERE city IN (SELECT country FROM users)
----
-- subquery | unit in
SELECT COUNT(*) FROM orders WHERE user_id IN (SELECT order_id FROM orders)
----
-- subquery | one column
SELECT COUNT(*) FROM orders WHERE product IN (SELECT product, category FROM products)
----
-- unknown_column | here
SELECT COUNT(*) FROM orders WHERE product IN (SELECT product FROM products WHERE price > amount)
----
-- join | a.unit = b.unit
SELECT COUNT(*) FROM orders a JOIN users b ON a.city = b.country
----
-- join | a.unit = b.unit
SELECT COUNT(*) FROM orders a, users b
----
-- join | a.unit = b.unit
SELECT COUNT(*) FROM orders a JOIN users b ON a.user_id = b.user_id OR a.city = 'Bern'
----
-- join | a.unit = b.unit
SELECT COUNT(*) FROM orders a JOIN orders b ON a.user_id = b.order_id
----
-- join | no unit
SELECT COUNT(*) FROM products p LEFT JOIN orders o ON o.product = p.product
----
-- join | inner or left
SELECT COUNT(*) FROM orders o FULL JOIN users u ON o.user_id = u.user_id
----
-- join | private table
SELECT COUNT(*) FROM products p JOIN holidays h ON p.product = h.name
----
-- row_level | unique
SELECT COUNT(*) FROM visits v JOIN holidays h ON v.day = h.day
----
-- row_level | unique
SELECT COUNT(*) FROM visits v JOIN products p ON v.product = p.product || ''
----
-- row_level | unique
SELECT COUNT(*) FROM visits v JOIN products p ON p.product = p.category
----
-- row_level | unique
SELECT COUNT(*) FROM visits v JOIN products p ON v.product = p.product OR v.day IS NULL
----
-- row_level | unique
SELECT COUNT(*) FROM visits CROSS JOIN products
----
-- row_level | unique
SELECT COUNT(*) FROM visits, products WHERE visits.product = products.product
----
-- row_level | many rows
SELECT COUNT(*) FROM visits a JOIN visits b ON a.id = b.id
----
-- row_level | twice
SELECT COUNT(*) FROM (SELECT day FROM visits UNION ALL SELECT day FROM visits) t
----
-- row_level | twice
WITH v AS (SELECT day FROM visits) SELECT COUNT(*) FROM (SELECT day FROM v UNION ALL SELECT day FROM logins UNION ALL SELECT day FROM v) t
----
-- row_level | distinct
SELECT COUNT(*) FROM (SELECT DISTINCT day FROM visits) t
----
-- row_level | decide
SELECT COUNT(*) FROM visits WHERE day IN (SELECT day FROM logins)
----
-- units_mixed | row by row
SELECT COUNT(*) FROM orders o JOIN visits v ON o.day = v.day
----
-- units_mixed | types
SELECT COUNT(*) FROM orders o JOIN members m ON o.user_id = m.user_id
----
-- union | types
SELECT COUNT(*) FROM (SELECT city FROM orders UNION ALL SELECT user_id FROM users) t
----
-- union | private
SELECT COUNT(*) FROM (SELECT product FROM orders UNION ALL SELECT product FROM products) t
----
-- union | union all
SELECT COUNT(*) FROM (SELECT user_id FROM orders EXCEPT SELECT user_id FROM users) t
----
-- union | union all
SELECT COUNT(*) FROM (SELECT city FROM orders UNION SELECT country FROM users) t
----
-- union | columns
SELECT COUNT(*) FROM (SELECT city, day FROM orders UNION ALL SELECT country FROM users) t
----
-- window | partition by the privacy unit
SELECT AVG(amount) FROM (SELECT amount, ROW_NUMBER() OVER (ORDER BY amount) AS r FROM orders) t WHERE r = 1
----
-- window | partition by the privacy unit
SELECT COUNT(*) FROM (SELECT LAG(amount) OVER (PARTITION BY city ORDER BY ts) AS l FROM orders) t
----
-- window | partition by the privacy unit
SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY page) AS r FROM visits) t
----
-- window | subquery
SELECT city, SUM(COUNT(*)) OVER () FROM orders GROUP BY city
----
-- unsupported | spec
SELECT COUNT(*) FROM (SELECT SUM(amount) OVER (PARTITION BY user_id ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM orders) t
----
-- limit | aggregate first
SELECT COUNT(*) FROM (SELECT * FROM orders ORDER BY amount DESC LIMIT 1) t
----
-- limit | units
SELECT AVG(n) FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id LIMIT 1) t
----
-- public_groups | orders.product
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS) product, COUNT(*) FROM orders GROUP BY product
----
-- too_many_groups | coarser
SELECT quantity, quantity + 1, quantity + 2, quantity + 3, quantity + 4, quantity + 5, COUNT(*) FROM orders GROUP BY 1, 2, 3, 4, 5, 6
----
-- options | options are
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(noise=0) COUNT(*) FROM orders
----
-- options | there is no option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(nois='laplace') COUNT(*) FROM orders
----
-- options | no such noise
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(noise='normal') COUNT(*) FROM orders
----
-- options | up to 4
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=5) COUNT(*) FROM orders
----
-- options | up to 10
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=11) COUNT(*) FROM orders
----
-- options | whole number
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=NULL) COUNT(*) FROM orders
----
-- options | user_id
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=order_id) COUNT(*) FROM orders
----
-- options | above 0
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=-1) COUNT(*) FROM orders
----
-- options | below 1
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(delta=1) COUNT(*) FROM orders
----
-- options | twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, epsilon=2) COUNT(*) FROM orders
----
-- options | aggregates
SELECT WITH DIFFERENTIAL_PRIVACY * FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t
----
-- options | named arguments are
SELECT SUM(amount, clip => (0, 1)) FROM orders
----
-- options | smaller first
SELECT SUM(amount, contribution_bounds_per_row => (10, 0)) FROM orders
----
-- options | weight
SELECT SUM(amount, weight => -1) FROM orders
----
-- interval | aggregate
SELECT city, DP_INTERVAL_LOW(city) FROM orders GROUP BY city
----
-- interval | aggregate
SELECT SUM(amount) / COUNT(*) AS r, DP_INTERVAL_LOW(r) FROM orders
----
-- literal | between 1 and 20 numbers
SELECT QUANTILE_CONT(amount, []) FROM orders
----
-- literal | a quantile is a number between 0 and 1
SELECT QUANTILE_CONT(amount, [0.5, 1.5]) FROM orders
----
-- literal | a quantile is a number between 0 and 1
SELECT QUANTILE_CONT(amount, [0.5, 'a']) FROM orders
----
-- literal | a quantile is a number between 0 and 1
SELECT QUANTILE_CONT(amount, [0.25, 0.5]) + 1 AS q FROM orders
----
-- aggregate | isn't supported per unit
SELECT AVG(q, contribution_bounds_per_row => (0, 9)) FROM (SELECT user_id, QUANTILE_CONT(amount, [0.25, 0.5]) AS q FROM orders GROUP BY user_id)
----
-- aggregate | WITHIN GROUP goes with PERCENTILE_CONT and MODE only
SELECT MEDIAN(amount) WITHIN GROUP (ORDER BY amount) FROM orders
----
-- public_groups | in =
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS) ts, COUNT(*) FROM bookings GROUP BY ts
----
-- public_groups | in =
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=PUBLIC_GROUPS) year(day), COUNT(*) FROM orders GROUP BY 1
----
-- auto | for all groups together
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 'auto') city, COUNT(*) FROM orders GROUP BY city
----
-- auto | only for COUNT and SUM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = 'auto', max_groups_contributed = 'auto') city, AVG(amount) FROM orders GROUP BY city
----
-- auto | where the bound on rows is chosen
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 'auto') city, COUNT(*) FROM orders GROUP BY city
