-- From slow requests to the thread that kept the server from its processor: three sources, joined by time.
--
--   duckdb -unsigned -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'; SET VARIABLE dir = 'offcpu.loom'" -f tests/cases/offcpu/drilldown.sql

SET TimeZone = 'UTC';

-- One position for all questions, and no missing record up to there.
SET VARIABLE position = (SELECT position FROM loom_snapshot(getvariable('dir')));

-- How slow are the slowest?
SELECT count AS requests, p50 / 1e6 AS p50_ms, p99 / 1e6 AS p99_ms, max / 1e6 AS max_ms
FROM loom_aggregate(getvariable('dir'), 'redis_request', 'latency', quantiles := [0.5, 0.99], at := getvariable('position'), complete := true);

-- The requests that took 10 ms or more, with the time at which each began.
CREATE OR REPLACE TEMP TABLE slow AS
SELECT *, ts_ns - latency_ns::BIGINT AS began_ns
FROM loom_scan(getvariable('dir'), 'redis_request', index := 'latency', v_min := 10_000_000, at := getvariable('position'), complete := true);
SET VARIABLE ends = (SELECT coalesce(list(ts), []) FROM slow);
SELECT ts, id, op, latency_ns / 1e6 AS latency_ms FROM slow ORDER BY latency_ns DESC LIMIT 5;

-- First question: which system call of the server was slow then? None worked for long. It waited for events.
SELECT number, count(*) AS calls, max(latency_ns) / 1e6 AS max_ms
FROM loom_scan(getvariable('dir'), 'syscall', around := getvariable('ends'), width := INTERVAL 50 MILLISECOND, at := getvariable('position'),
    complete := true)
WHERE comm = 'redis-server' GROUP BY ALL ORDER BY max_ms DESC LIMIT 5;

-- Second question: did the server wait for a processor? `wait_ns` is the time in the run queue before a run.
CREATE OR REPLACE TEMP TABLE waits AS
SELECT *, ts_ns - ran_ns::BIGINT AS started_ns, ts_ns - (ran_ns + wait_ns)::BIGINT AS runnable_ns
FROM loom_scan(getvariable('dir'), 'sched', around := getvariable('ends'), width := INTERVAL 50 MILLISECOND, index := 'wait', v_min := 5_000_000,
    at := getvariable('position'), complete := true)
WHERE comm = 'redis-server';
SELECT ts, wait_ns / 1e6 AS wait_ms, cpu, prev_tid FROM waits ORDER BY wait_ns DESC LIMIT 5;

-- Third question: who had the processor meanwhile? The run that ended there when the wait ended.
CREATE OR REPLACE TEMP TABLE verdict AS
SELECT slow.id AS request, slow.latency_ns / 1e6 AS latency_ms, max(waits.wait_ns) / 1e6 AS wait_ms, arg_max(owner.comm, waits.wait_ns) AS culprit
FROM slow
JOIN waits ON waits.runnable_ns < slow.ts_ns AND waits.started_ns > slow.began_ns
JOIN (
    FROM loom_scan(getvariable('dir'), 'sched', around := getvariable('ends'), width := INTERVAL 50 MILLISECOND, at := getvariable('position'))
) owner ON owner.tid = waits.prev_tid AND owner.cpu = waits.cpu AND owner.ts_ns BETWEEN waits.started_ns - 1_000_000 AND waits.started_ns + 1_000_000
GROUP BY ALL;
FROM verdict ORDER BY latency_ms DESC LIMIT 5;

-- The results of each step.
SELECT (SELECT count(*) FROM slow) AS slow_requests, (SELECT count(*) FROM verdict WHERE 2 * wait_ms > latency_ms) AS explained,
    (SELECT mode(culprit) FROM verdict) AS culprit;
