-- load: --fields edge.toml --ts t
-- Few records with all values at the ends of their types, 97 of each, at times before the epoch, far ahead, and at both ends of time.
SELECT t::BIGINT AS t, u::UBIGINT AS u, f::DOUBLE AS f, s::FLOAT AS s, due::TIMESTAMP_NS AS due, n::INTEGER AS n FROM (
    VALUES
        (-9_223_372_036_854_775_808, 0, 'nan', 'nan', '1677-09-22 00:00:00', NULL),
        (-1, 9_223_372_036_854_775_807, '-0.0', '-0.0', '1969-12-31 23:59:59.999999999', -1),
        (-1000, 9_223_372_036_854_775_808, '0.0', '0.0', '1970-01-01 00:00:00', 0),
        (0, 9_223_372_036_854_775_809, 'inf', 'inf', '2262-04-11 23:47:16.854775806', 1),
        (999, 18_446_744_073_709_551_615, '-inf', '-inf', '2026-01-01 00:00:00.000000001', NULL),
        (9_223_372_036_854_775_807, 9_007_199_254_740_993, '9007199254740993', '0.1', '2026-01-01 00:00:00', 2_147_483_647)
    ) AS v(t, u, f, s, due, n), range(97)
