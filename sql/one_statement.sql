-- The same questions, each in one statement. The answers are the same, but both sources are read from end to end: the result of a
-- subquery or a join is known too late to choose chunks. That is cheap for a window of seconds; for a day, use sql/drilldown.sql.
--
--   ingestd demo demo.loom --seconds 60 &
--   duckdb -unsigned -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'" -f sql/one_statement.sql

SET TimeZone = 'UTC';
SET VARIABLE dir = 'demo.loom';
SET VARIABLE position = (SELECT position FROM loom_snapshot(getvariable('dir')));

-- The slowest call in the 50 ms before each slow request's end.
SELECT request.id AS request, arg_max(call.id, call.latency_ns) AS call
FROM loom_scan(getvariable('dir'), 'redis_request', at := getvariable('position')) AS request
JOIN loom_scan(getvariable('dir'), 'syscall', at := getvariable('position')) AS call
    ON call.ts BETWEEN request.ts - INTERVAL 50 MILLISECOND AND request.ts
WHERE request.latency_ns >= 5 * (
    SELECT p99_99 FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.9999],
        at := getvariable('position')))
GROUP BY request.id ORDER BY request.id;

-- The system call before each slow request's end, by an ASOF join.
SELECT request.id AS request, call.number, request.ts_ns - call.ts_ns AS earlier_ns
FROM loom_scan(getvariable('dir'), 'redis_request', at := getvariable('position')) AS request
ASOF JOIN loom_scan(getvariable('dir'), 'syscall', at := getvariable('position')) AS call
    ON request.ts_ns >= call.ts_ns
WHERE request.latency_ns >= 5 * (
    SELECT p99_99 FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.9999],
        at := getvariable('position')))
ORDER BY request.id;

-- The statement read every chunk of the source.
SELECT source, chunks_total, chunks_read FROM loom_scan_stats() WHERE source = 'syscall' ORDER BY scan DESC LIMIT 1;
