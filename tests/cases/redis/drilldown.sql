-- From slow requests to the packets that made them slow: three sources, joined by time.
--
--   duckdb -unsigned -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'; SET VARIABLE dir = 'redis.loom'" -f tests/cases/redis/drilldown.sql
--
-- With the variable `one_in`, it sees only one record in that many, like a store that samples.

SET TimeZone = 'UTC';
SET VARIABLE one_in = coalesce(getvariable('one_in'), 1);

-- One position for all questions, and no missing record up to there.
SET VARIABLE position = (SELECT position FROM loom_snapshot(getvariable('dir')));

-- How slow are the slowest? Half of the requests take microseconds.
SELECT count AS requests, p50 / 1e6 AS p50_ms, p99 / 1e6 AS p99_ms, p99_99 / 1e6 AS p99_99_ms, max / 1e6 AS max_ms
FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.5, 0.99, 0.9999], at := getvariable('position'),
    complete := true);
SET VARIABLE p = (
    SELECT p99_99 FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.9999], at := getvariable('position')));

-- The slowest one in ten thousand, with the time at which each began.
CREATE OR REPLACE TEMP TABLE slow AS
SELECT *, ts_ns - latency_ns::BIGINT AS began_ns, ts - to_microseconds(latency_ns::BIGINT // 1000) AS began
FROM loom_scan(getvariable('dir'), 'redis_request', index := 'latency', v_min := getvariable('p'), at := getvariable('position'), complete := true)
WHERE hash(addr) % getvariable('one_in') = 0;
SET VARIABLE ends = (SELECT coalesce(list(ts), []) FROM slow);
SET VARIABLE begins = (SELECT coalesce(list(began), []) FROM slow);
SELECT ts, id, op, client_port, latency_ns / 1e6 AS latency_ms FROM slow ORDER BY latency_ns DESC LIMIT 5;

-- System calls as slow as that, of the server and of its clients, that returned just before a slow request ended; not those that only wait.
CREATE OR REPLACE TEMP TABLE calls AS
FROM loom_scan(getvariable('dir'), 'syscall', around := getvariable('ends'), width := INTERVAL 50 MILLISECOND,
    index := 'latency', v_min := getvariable('p') // 2, at := getvariable('position'), complete := true)
WHERE hash(addr) % getvariable('one_in') = 0;
SELECT comm, number, count(*) AS slow_calls, max(latency_ns) / 1e6 AS max_ms FROM calls GROUP BY ALL ORDER BY slow_calls DESC, max_ms DESC LIMIT 5;

-- Each slow request, with the call of its own thread that took more than half of it: the thread waited for the answer, which came late. The
-- clocks of the sources agree to microseconds, so the end of the call may seem to be after the end of the request.
CREATE OR REPLACE TEMP TABLE waits AS
SELECT slow.*, calls.number AS call, calls.latency_ns AS call_ns
FROM slow JOIN calls ON calls.tid = slow.tid AND calls.ts_ns BETWEEN slow.began_ns AND slow.ts_ns + 1_000_000
    AND calls.latency_ns > slow.latency_ns // 2;

-- The packets at the times when the slow requests were sent. Where did the clients' packets go?
CREATE OR REPLACE TEMP TABLE near AS
FROM loom_scan(getvariable('dir'), 'packet', around := getvariable('begins'), width := INTERVAL 50 MILLISECOND, at := getvariable('position'),
    complete := true)
WHERE hash(addr) % getvariable('one_in') = 0;
SELECT dst_port, count(*) AS packets FROM near WHERE src_port IN (SELECT client_port FROM slow) GROUP BY dst_port ORDER BY packets DESC LIMIT 5;

-- A packet from the connection of a waiting request, sent as the request began, to another port than all others: TCP sent it again 200 ms
-- later. Its sequence number, at byte 38 of the packet, identifies it.
SET VARIABLE port = (SELECT mode(dst_port) FROM near WHERE src_port IN (SELECT client_port FROM slow));
CREATE OR REPLACE TEMP TABLE verdict AS
SELECT waits.id AS request, waits.latency_ns / 1e6 AS latency_ms, waits.call, waits.call_ns / 1e6 AS call_ms, near.src_port, near.dst_port,
    ('0x' || hex(near.packet)[77:84])::UBIGINT AS tcp_seq
FROM waits JOIN near ON near.src_port = waits.client_port AND near.dst_port <> getvariable('port')
    AND near.ts_ns BETWEEN waits.began_ns - 50_000_000 AND waits.ts_ns;
FROM verdict ORDER BY request;

-- The part of the directory that this read.
SELECT source, chunks_total, chunks_read, bytes_read FROM loom_scan_stats() ORDER BY scan DESC LIMIT 3;

-- The results of each step.
SELECT (SELECT count(*) FROM slow) AS slow_requests, (SELECT count(*) FROM waits) AS with_a_slow_call,
    (SELECT count(*) FROM near WHERE src_port IN (SELECT client_port FROM slow) AND dst_port <> getvariable('port')) AS odd_packets,
    (SELECT count(*) FROM verdict) AS explained;
