-- Why are six Redis requests slow? The drill-down of the demonstration, in DuckDB's command line:
--
--   ingestd demo demo.loom --seconds 60 &
--   LOOM_DIR=demo.loom duckdb -unsigned -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'" -f sql/demo.sql
--
-- The daemon records requests, system calls and packets meanwhile. No statement here knows which ports are right: time alone shows which records
-- belong together.

SET TimeZone = 'UTC';
SET VARIABLE dir = getenv('LOOM_DIR');
.mode box

.print 'How much is there? It grows while we look.'
SELECT name, records, last_ts FROM loom_sources(getvariable('dir')) WHERE name NOT LIKE 'loom_%' ORDER BY name;
.shell sleep 1
SELECT name, records, last_ts FROM loom_sources(getvariable('dir')) WHERE name NOT LIKE 'loom_%' ORDER BY name;
.shell sleep 1
SELECT name, records, last_ts FROM loom_sources(getvariable('dir')) WHERE name NOT LIKE 'loom_%' ORDER BY name;

.print 'The latency of every request so far, exactly:'
.timer on
SELECT count, min, avg, p99_99, max
FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.9999]);
.timer off

-- All later statements use one position, so every source is read as of the same instant.
SET VARIABLE position = (SELECT position FROM loom_snapshot(getvariable('dir')));
SET VARIABLE tail = (
    SELECT p99_99 FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.9999],
        at := getvariable('position')));

.print 'Requests that took five times as long as the p99.99:'
.timer on
CREATE TABLE slow AS
SELECT ts, ts_ns, id, op, latency_ns
FROM loom_scan(getvariable('dir'), 'redis_request', index := 'latency', v_min := 5 * getvariable('tail'),
    at := getvariable('position'));
.timer off
FROM slow ORDER BY ts_ns;

.print 'What the other sources saw within 20 ms of each of them:'
SET VARIABLE hits = (SELECT list(ts) FROM slow);
.timer on
CREATE TABLE near_calls AS
FROM loom_scan(getvariable('dir'), 'syscall', around := getvariable('hits'), width := INTERVAL 20 MILLISECOND,
    at := getvariable('position'));
CREATE TABLE near_packets AS
FROM loom_scan(getvariable('dir'), 'packet', around := getvariable('hits'), width := INTERVAL 20 MILLISECOND,
    at := getvariable('position'));
.timer off
SELECT (SELECT count(*) FROM near_calls) AS system_calls, (SELECT count(*) FROM near_packets) AS packets;

-- Of the calls in the 20 ms before a request's end, the slowest; of the packets, the one whose pair of ports nothing else has.
CREATE TABLE found AS
WITH calls AS (
    SELECT s.id AS request, arg_max(c.id, c.latency_ns) AS call
    FROM slow AS s JOIN near_calls AS c ON c.ts_ns BETWEEN s.ts_ns - 20_000_000 AND s.ts_ns
    GROUP BY s.id
), odd AS (
    FROM near_packets QUALIFY count(*) OVER (PARTITION BY src_port, dst_port) = 1
), packets AS (
    SELECT s.id AS request, arg_max(p.id, p.ts_ns) AS packet
    FROM slow AS s JOIN odd AS p ON p.ts_ns BETWEEN s.ts_ns - 20_000_000 AND s.ts_ns
    GROUP BY s.id
)
SELECT request, call, packet FROM calls JOIN packets USING (request);

.print 'Each slow request, the slow call in it, and the mangled packet that both waited for:'
SELECT s.ts AS request_at, s.latency_ns / 1e6 AS request_ms, c.number AS call, c.latency_ns / 1e6 AS call_ms,
    p.src_port || ' to ' || p.dst_port AS packet, (s.ts_ns - p.ts_ns) / 1e6 AS sent_ms_before
FROM found AS f
JOIN slow AS s ON s.id = f.request
JOIN near_calls AS c ON c.id = f.call
JOIN near_packets AS p ON p.id = f.packet
ORDER BY s.ts_ns;

COPY (FROM found ORDER BY request) TO 'found.csv';
