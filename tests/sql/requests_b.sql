-- load: --fields requests.toml --ts t
-- source: requests
-- The same source on another host: half as many requests, half a millisecond later, and slower ones.
SELECT
    1_767_225_600_000_500_000 + i * 2_000_000 AS t,
    (3000 + i * 53 % 900 + CASE WHEN i % 500 = 7 THEN 2_000_000 * (1 + i // 500) ELSE 0 END)::UBIGINT AS latency_ns,
    (1 + i % 2)::UTINYINT AS op,
    CASE WHEN i % 4 = 1 THEN NULL ELSE (i % 9)::INTEGER - 4 END AS shard,
    'client ' || (i % 3) AS client
FROM range(5000) AS numbers(i)
