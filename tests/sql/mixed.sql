-- load: --ts t --index u8v --index u32v --index u64v --index i32v --index i64v --index f64v
-- Every type that Parquet and Loom share, with NULLs, extreme values, NaN and infinities; times out of order.
SELECT
    1_700_000_000_000_000_000 + (i * 7919 % 20_000) * 1_000_000 + i % 1000 AS t,
    (hash(i) % 256)::UTINYINT AS u8v,
    (hash(i, 1) % 65536)::USMALLINT AS u16v,
    (hash(i, 2) % 1_000_000)::UINTEGER AS u32v,
    hash(i, 3)::UBIGINT AS u64v,
    ((hash(i, 4) % 256)::INTEGER - 128)::TINYINT AS i8v,
    ((hash(i, 5) % 65536)::INTEGER - 32768)::SMALLINT AS i16v,
    CASE WHEN i % 11 = 0 THEN NULL ELSE (hash(i, 6) % 20_001)::INTEGER - 10_000 END AS i32v,
    (hash(i, 7) >> 1)::BIGINT * CASE WHEN i % 2 = 0 THEN 1 ELSE -1 END AS i64v,
    ((hash(i, 8) % 1000) / 8)::FLOAT AS f32v,
    CASE i % 1000 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE WHEN 3 THEN NULL
        WHEN 4 THEN -0.0 ELSE ((hash(i, 9) % 2_000_001)::BIGINT - 1_000_000) / 16 END AS f64v,
    i % 3 = 0 AS flag,
    CASE WHEN i % 7 = 0 THEN NULL WHEN i % 7 = 1 THEN '' ELSE 'text ' || (hash(i, 10) % 1000) END AS word,
    encode('b' || (hash(i, 11) % 100)) AS raw
FROM range(20_000) AS numbers(i)
