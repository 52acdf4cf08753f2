-- aggs=sum bounds=0:100
SELECT SUM(amount) FROM orders
----
-- aggs=avg bounds=0:200
SELECT AVG(amount * 2) FROM orders
----
-- aggs=sum bounds=0:2000
SELECT SUM(amount * quantity) FROM orders
----
-- aggs=sum bounds=-20:100
SELECT SUM(amount - quantity) FROM orders
----
-- aggs=sum bounds=0:100
SELECT SUM(CASE WHEN coupon THEN amount ELSE 0 END) FROM orders
----
-- aggs=sum bounds=0:100
SELECT SUM(amount) FILTER (WHERE city = 'Bern') FROM orders
----
-- aggs=avg bounds=0:1
SELECT AVG(coupon) FROM orders
----
-- aggs=sum bounds=0:10
SELECT SUM(score, contribution_bounds_per_row => (0, 10)) FROM orders
----
-- aggs=sum bounds=0:50
SELECT SUM(amount, contribution_bounds_per_row => (0, 50)) FROM orders
----
-- aggs=sum bounds=0:100
SELECT SUM(amount, contribution_bounds_per_group => (0, 500)) FROM orders
----
-- aggs=sum bounds=-5:30
SELECT SUM(score, contribution_bounds_per_group => (-5, 30)) FROM orders
----
-- aggs=avg bounds=0:30
SELECT AVG(score, contribution_bounds_per_group => (0, 30)) FROM orders
----
-- aggs=avg auto=orders.rating
SELECT AVG(rating) FROM orders
----
-- aggs=avg auto=orders.rating
SELECT AVG(rating * 2 + 1) FROM orders
----
-- aggs=avg bounds=1:5 auto=
SELECT AVG(rating, contribution_bounds_per_row => (1, 5)) FROM orders
----
-- aggs=sum bounds=-1:1 auto=
SELECT SUM(sign(rating)) FROM orders
----
-- aggs=sum bounds=0:40
SELECT SUM(LEAST(GREATEST(score, 0), 40)) FROM orders
----
-- aggs=var_samp,stddev_pop
SELECT VARIANCE(amount), STDDEV_POP(amount) FROM orders
----
-- aggs=corr,covar_pop,covar_samp
SELECT CORR(amount, quantity), COVAR_POP(amount, quantity), COVAR_SAMP(amount, quantity) FROM orders
----
-- aggs=quantile quantile=1/2 bounds=0:100
SELECT MEDIAN(amount) FROM orders
----
-- aggs=quantile quantile=19/20
SELECT QUANTILE_CONT(amount, 0.95) FROM orders
----
-- aggs=quantile quantile=1/4
SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY amount) FROM orders
----
-- aggs=quantile quantile=3/4
SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY amount DESC) FROM orders
----
-- aggs=mode
SELECT MODE(city) FROM orders
----
-- aggs=mode
SELECT MODE() WITHIN GROUP (ORDER BY city) FROM orders
----
-- aggs=sum,count columns=share
SELECT 100.0 * SUM(amount) / COUNT(*) AS share FROM orders
----
-- aggs=avg columns=a,b
SELECT ROUND(AVG(amount), 2) AS a, CASE WHEN AVG(amount) > 50 THEN 'high' ELSE 'low' END AS b FROM orders
----
-- aggs=sum columns=sum,sum_2
SELECT SUM(amount), SUM(amount) FROM orders
----
-- aggs=sum,sum columns=sum,sum_2
SELECT SUM(amount), SUM(quantity) FROM orders
----
-- aggs=sum columns=total,lo,hi
SELECT SUM(amount) AS total, DP_INTERVAL_LOW(total) AS lo, DP_INTERVAL_HIGH(SUM(amount)) AS hi FROM orders
----
-- aggs=sum bounds=0:10
SELECT SUM(sqrt(amount)) FROM orders
----
-- aggs=sum bounds=0:100
SELECT SUM(amount::integer) FROM orders
----
-- aggs=sum bounds=0:50 units=column
SELECT SUM(p.price) FROM orders o JOIN products p ON o.product = p.product
----
-- aggs=sum bounds=0:10000
SELECT SUM(amount ^ 2) FROM orders
----
-- aggs=sum bounds=0:60
SELECT SUM(coalesce(l.seconds, 0)) FROM logins l
----
-- aggs=quantile,quantile,quantile quantile=1/2,1/4,3/4 columns=q_25,q_50,q_75
SELECT QUANTILE_CONT(amount, [0.25, 0.5, 0.75]) AS q FROM orders
----
-- aggs=quantile,quantile quantile=1/20,999/1000 columns=percentile_cont_99_9,percentile_cont_5
SELECT PERCENTILE_CONT(ARRAY[0.999, 0.05]) WITHIN GROUP (ORDER BY amount) FROM orders
----
-- aggs=count,quantile,quantile quantile=1/2,9/10 keys=public columns=city,quantile_cont_50,quantile_cont_90,n
SELECT city, QUANTILE_CONT(amount, [0.5, 0.9], weight => 2) FILTER (WHERE quantity > 1), COUNT(*) AS n FROM orders GROUP BY city ORDER BY 2
----
-- aggs=avg,avg_per_unit columns=a,b
SELECT AVG(amount) AS a, AVG_PER_UNIT(amount) AS b FROM orders
----
-- aggs=avg_per_unit keys=public columns=city,m
SELECT city, ROUND(AVG_PER_UNIT(quantity) FILTER (WHERE coupon), 1) AS m FROM orders GROUP BY city
----
-- aggs=quantile columns=m,lo,hi
SELECT MEDIAN(amount) AS m, DP_INTERVAL_LOW(m) AS lo, DP_INTERVAL_HIGH(m) AS hi FROM orders
