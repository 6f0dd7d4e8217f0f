-- Which of three hosts is slow, and since when? sql/fleet_of_three.sh prepares them.

.mode box
SET TimeZone = 'UTC';
SET VARIABLE fleet = fleet_frozen();

.print 'The whole fleet, exactly:'
SELECT count, min, max, round(avg) AS avg FROM fleet_aggregate('redis_request', 'latency');

.print 'A hundred times as long as half of the requests: on which host, and since when?'
SET VARIABLE bin = fleet_bin('redis_request', 'latency', 0.5);
SET VARIABLE slow = 100 * fleet_quantile('redis_request', 'latency', getvariable('bin'));
SELECT host, count(*) AS slow, min(ts) AS first, max(latency_ns) / 1e6 AS slowest_ms
FROM fleet_ask('FROM host_scan(''redis_request'', index := ''latency'', v_min := ' || getvariable('slow') || ', at := {at})')
GROUP BY host ORDER BY slow DESC;
