-- load: --fields requests.toml --ts t
-- Requests at one a millisecond from 2026-01-01, with labelled operations, a NULL now and then, and a slow one every 1000.
SELECT
    1_767_225_600_000_000_000 + i * 1_000_000 AS t,
    (1000 + i * 37 % 500 + CASE WHEN i % 1000 = 999 THEN 1_000_000 * (1 + i // 1000) ELSE 0 END)::UBIGINT AS latency_ns,
    (1 + i % 3)::UTINYINT AS op,
    CASE WHEN i % 10 = 9 THEN NULL ELSE (i % 7)::INTEGER - 3 END AS shard,
    'client ' || (i % 5) AS client
FROM range(10_000) AS numbers(i)
