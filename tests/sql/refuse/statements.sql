-- statement | only select
DELETE FROM orders
----
-- statement | only select
INSERT INTO orders VALUES (1)
----
-- statement | only select
DROP TABLE orders
----
-- statement | only select
CREATE TABLE x AS SELECT * FROM orders
----
-- statement | only select
ATTACH 'other.db'
----
-- statement | only select
COPY orders TO 'out.csv'
----
-- statement | only select
INSTALL httpfs
----
-- statement | only select
LOAD httpfs
----
-- statement | only select
SET threads = 1
----
-- statement | only select
PRAGMA database_list
----
-- statement | only select
CALL pragma_version()
----
-- statement | only select
BEGIN TRANSACTION
----
-- statement | only select
SHOW TABLES
----
-- statement | only select
DESCRIBE orders
----
-- statement | only select
VALUES (1)
----
-- statement | only select
TABLE orders
----
-- statement | explain privacy
EXPLAIN SELECT COUNT(*) FROM orders
----
-- statement | explain privacy
EXPLAIN ANALYZE SELECT COUNT(*) FROM orders
----
-- statement | one question
SELECT COUNT(*) FROM orders; SELECT COUNT(*) FROM users
----
-- statement | one question
SELECT COUNT(*) FROM orders; DROP TABLE orders
----
-- statement | no question
-- only a comment
----
-- statement | question
WITH t AS (SELECT 1) DELETE FROM orders
----
-- syntax | can't be read
SELECT COUNT(* FROM orders
----
-- syntax | closed
SELECT COUNT(*) FROM orders WHERE product = 'x
----
-- syntax | closed
SELECT COUNT(*) FROM orders WHERE product = "x
----
-- syntax | can't be read
SELECT FROM WHERE
----
-- syntax | can't be read
SELECT COUNT(*) FROM orders WHERE product = x'41'
----
-- unsupported | into
SELECT COUNT(*) INTO other FROM orders
----
-- unsupported | locks
SELECT COUNT(*) FROM orders FOR UPDATE
----
-- unsupported | recursive
WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 2 FROM t) SELECT COUNT(*) FROM t
----
-- unsupported | sample
SELECT COUNT(*) FROM orders TABLESAMPLE 10%
----
-- unsupported | sample
SELECT COUNT(*) FROM orders USING SAMPLE 10
----
-- unsupported | pivots
SELECT COUNT(*) FROM orders PIVOT (SUM(amount) FOR city IN ('Bern'))
----
-- unsupported | rollup
SELECT city, COUNT(*) FROM orders GROUP BY ROLLUP (city)
----
-- unsupported | sets
SELECT city, COUNT(*) FROM orders GROUP BY GROUPING SETS ((city), ())
----
-- unsupported | except
SELECT COUNT(*) FROM (SELECT * EXCLUDE (amount) FROM orders) t
----
-- unsupported | supported
SELECT COUNT(*) FROM orders WHERE [1, 2][1] = 1
----
-- unsupported | supported
SELECT COUNT(*) FROM orders WHERE ts AT TIME ZONE 'UTC' > ts
----
-- unsupported | supported
SELECT COUNT(*) FROM orders WHERE product SIMILAR TO 'a.*'
----
-- unsupported | distinct
SELECT DISTINCT city, COUNT(*) FROM orders GROUP BY city
----
-- unsupported | on
SELECT COUNT(*) FROM (SELECT DISTINCT ON (city) amount FROM orders) t
----
-- parameter | write the value
SELECT COUNT(*) FROM orders WHERE user_id = ?
----
-- parameter | write the value
SELECT COUNT(*) FROM orders WHERE user_id = $1
----
-- profile | it isn't said of what
PROFILE
----
-- profile | no more than tables and WHERE
PROFILE orders GROUP BY city
----
-- profile | one table or join
PROFILE orders UNION ALL SELECT 1
----
-- profile | here each has one
PROFILE (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) AS d
