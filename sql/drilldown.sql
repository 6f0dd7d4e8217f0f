-- The drill-down from a quantile to its cause, in statements that each read a few chunks.
--
--   ingestd demo demo.loom --seconds 60 &
--   duckdb -unsigned -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'" -f sql/drilldown.sql
--
-- Variables pass the answer of one statement to the next as a parameter. A subquery or a join cannot choose chunks, because its result
-- is known only while the query runs. sql/macros.sql has macros for most of this.

SET TimeZone = 'UTC';
SET VARIABLE dir = 'demo.loom';

-- All statements use one position, so every source is read as of the same instant while the daemon continues.
SET VARIABLE position = (SELECT position FROM loom_snapshot(getvariable('dir')));

-- The exact tail, from summaries.
SET VARIABLE p = (
    SELECT p99_99 FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.9999],
        at := getvariable('position')));

-- The requests far beyond it, and their ends. The index finds them without reading other chunks.
CREATE OR REPLACE TEMP TABLE slow AS
FROM loom_scan(getvariable('dir'), 'redis_request', index := 'latency', v_min := 5 * getvariable('p'), at := getvariable('position'));
SET VARIABLE hits = (SELECT list(ts) FROM slow);
SELECT ts, op, latency_ns / 1e6 AS milliseconds FROM slow ORDER BY ts_ns;

-- Every other source within 5 s of them. Windows that overlap are read once.
SELECT number, count(*) AS calls, max(latency_ns) / 1e6 AS slowest_milliseconds
FROM loom_scan(getvariable('dir'), 'syscall', around := getvariable('hits'), width := INTERVAL 5 SECOND, at := getvariable('position'))
GROUP BY number ORDER BY slowest_milliseconds DESC;

SELECT dst_port, count(*) AS packets
FROM loom_scan(getvariable('dir'), 'packet', around := getvariable('hits'), width := INTERVAL 5 SECOND, at := getvariable('position'))
GROUP BY dst_port ORDER BY packets LIMIT 8;

-- Some calls took as long as the requests. Which? A window and an index together.
SET VARIABLE p_call = (
    SELECT p99_99 FROM loom_aggregate(getvariable('dir'), 'syscall', 'latency', quantiles := [0.9999], at := getvariable('position')));
CREATE OR REPLACE TEMP TABLE calls AS
FROM loom_scan(getvariable('dir'), 'syscall', around := getvariable('hits'), width := INTERVAL 5 SECOND,
    index := 'latency', v_min := 10 * getvariable('p_call'), at := getvariable('position'));
SET VARIABLE call_hits = (SELECT list(ts) FROM calls);

-- Closer: the requests within 1 ms of those calls.
SELECT count(*) AS requests
FROM loom_scan(getvariable('dir'), 'redis_request', around := getvariable('call_hits'), width := INTERVAL 1 MILLISECOND,
    at := getvariable('position'));

-- The packets of the 100 ms around them, of which the odd ones have a pair of ports that no other has.
CREATE OR REPLACE TEMP TABLE odd AS
FROM loom_scan(getvariable('dir'), 'packet', around := getvariable('call_hits'), width := INTERVAL 100 MILLISECOND,
    at := getvariable('position'))
QUALIFY count(*) OVER (PARTITION BY src_port, dst_port) = 1;

-- The cause of each request's delay: the latest slow call before its end, and the latest odd packet before the end of that call.
CREATE OR REPLACE TEMP TABLE cause AS
SELECT slow.ts, slow.id AS request, calls.id AS call, calls.ts_ns AS call_ns
FROM slow ASOF JOIN calls ON slow.ts_ns >= calls.ts_ns;

CREATE OR REPLACE TEMP TABLE verdict AS
SELECT cause.ts, cause.request, cause.call, odd.id AS packet, odd.src_port, odd.dst_port
FROM cause ASOF JOIN odd ON cause.call_ns >= odd.ts_ns;

-- The number of the directory's chunks that were read.
SELECT source, chunks_total, chunks_read, bytes_read FROM loom_scan_stats() ORDER BY scan DESC LIMIT 6;

SELECT request, call, packet FROM verdict ORDER BY request;
