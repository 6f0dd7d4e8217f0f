-- load: --fields wide.toml --ts t
-- Every kind of key, ascending with time, one row a millisecond from 2026-01-01. A condition on any of them matches rows in few chunks.
SELECT
    1_767_225_600_000_000_000 + i * 1_000_000 AS t,
    (i * 10)::UBIGINT AS u,
    (i - 50_000)::INTEGER AS i,
    i / 8.0::DOUBLE AS f,
    (i / 16.0)::FLOAT AS s,
    make_timestamp_ns(1_767_225_600_000_000_000 + i * 60_000_000_000) AS due,
    (1 + i // 40_000)::UTINYINT AS op,
    i >= 90_000 AS ok,
    i // 1000 AS part,
    'note ' || (i % 5) AS note
FROM range(100_000) AS numbers(i)
