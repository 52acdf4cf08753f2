-- unknown_table | orders, products
SELECT COUNT(*) FROM secrets
----
-- unknown_table | tables are
SELECT COUNT(*) FROM information_schema.tables
----
-- unknown_table | tables are
SELECT COUNT(*) FROM 'orders.csv'
----
-- unknown_table | tables are
SELECT COUNT(*) FROM "Orders"
----
-- unknown_table | after from
SELECT COUNT(x.amount) FROM orders
----
-- unknown_table | tables are
SELECT COUNT(*) FROM оrders
----
-- table_function | tables
SELECT COUNT(*) FROM read_csv('/etc/passwd')
----
-- table_function | tables
SELECT COUNT(*) FROM read_parquet('x.parquet')
----
-- table_function | tables
SELECT COUNT(*) FROM glob('*')
----
-- table_function | tables
SELECT COUNT(*) FROM duckdb_settings()
----
-- table_function | tables
SELECT COUNT(*) FROM pragma_table_info('orders')
----
-- table_function | tables
SELECT COUNT(*) FROM orders, LATERAL (SELECT 1) t
----
-- table_function | tables
SELECT COUNT(*) FROM orders, unnest([1, 2]) t
----
-- table_function | tables
SELECT COUNT(*) FROM (VALUES (1)) t
----
-- unknown_column | columns are
SELECT SUM(nothing) FROM orders
----
-- unknown_column | city
SELECT COUNT(*) FROM orders WHERE "City" = 'Bern'
----
-- unknown_column | columns are
SELECT COUNT(*) FROM (SELECT city FROM orders) t WHERE user_id = 1
----
-- unknown_column | by number
SELECT city, COUNT(*) FROM orders GROUP BY 7
----
-- unknown_column | columns are
SELECT z FROM (SELECT city, COUNT(*) AS n FROM orders GROUP BY city) t
----
-- ambiguous | alias
SELECT COUNT(*) FROM orders o JOIN users u ON o.user_id = u.user_id WHERE user_id = 3
----
-- ambiguous | alias
SELECT COUNT(*) FROM orders JOIN orders ON orders.user_id = orders.user_id
----
-- hidden_column | hides
SELECT COUNT(DISTINCT note) FROM orders
----
-- hidden_column | hides
SELECT COUNT(*) FROM orders WHERE note LIKE '%cancer%'
----
-- unknown_column | note
SELECT COUNT(*) FROM (SELECT * FROM orders) t WHERE note = 'x'
----
-- unknown_function | Functions like round, lower, substr, coalesce can be used
SELECT COUNT(*) FROM orders WHERE pg_read_file('/etc/passwd') = 'x'
----
-- unknown_function | row alone
SELECT COUNT(*) FROM orders WHERE random() < 0.5
----
-- unknown_function | “now” depends on the clock
SELECT COUNT(*) FROM orders WHERE ts > now()
----
-- unknown_function | “current_date” depends on the clock
SELECT COUNT(*) FROM orders WHERE day > current_date
----
-- unknown_function | Functions like round, lower, substr, coalesce can be used
SELECT SUM(CASE WHEN user_id = 7 THEN error('found') ELSE 1 END) FROM orders
----
-- unknown_function | row alone
SELECT COUNT(*) FROM orders WHERE uuid() = 'x'
----
-- unknown_function | Functions like round, lower, substr, coalesce can be used
SELECT COUNT(*) FROM orders WHERE getenv('HOME') = 'x'
----
-- unknown_function | Functions like round, lower, substr, coalesce can be used
SELECT my_udf(amount), COUNT(*) FROM orders GROUP BY 1
----
-- unknown_function | Functions like round, lower, substr, coalesce can be used
SELECT COUNT(*) FROM orders WHERE regexp_matches(product, '(')
----
-- types | boolean
SELECT COUNT(*) FROM orders WHERE amount
----
-- types | one kind
SELECT COUNT(*) FROM orders WHERE amount = 'x'
----
-- types | text
SELECT COUNT(*) FROM orders WHERE lower(amount) = 'x'
----
-- types | constant
SELECT COUNT(*) FROM orders WHERE product LIKE city
----
-- types | date_diff
SELECT AVG(ts) FROM orders
----
-- types | date_diff
SELECT MEDIAN(day) FROM orders
----
-- types | numbers
SELECT SUM(product) FROM orders
----
-- types | types are
SELECT COUNT(*) FROM orders WHERE amount::json IS NULL
----
-- types | units are
SELECT date_trunc('fortnight', day), COUNT(*) FROM orders GROUP BY 1
----
-- types | argument
SELECT COUNT(*) FROM orders WHERE lower(product, city) = 'x'
----
-- literal | yyyy-mm-dd
SELECT COUNT(*) FROM orders WHERE day = DATE '2024-02-30'
----
-- literal | yyyy-mm-dd
SELECT COUNT(*) FROM orders WHERE day = 'tomorrow'
----
-- literal | digits
SELECT COUNT(*) FROM orders WHERE amount > 1e999
----
-- literal | between 0 and 1
SELECT QUANTILE_CONT(amount, 1.5) FROM orders
----
-- literal | is null
SELECT COUNT(*) FROM orders WHERE city IN ('Bern', NULL)
----
-- literal | whole number
SELECT COUNT(*) FROM orders LIMIT 1.5
