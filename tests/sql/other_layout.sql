-- load: --ts t --index latency
-- source: requests
-- A source of the same name whose records have other fields.
SELECT 1_767_225_600_000_000_000 + i AS t, i::DOUBLE AS latency
FROM range(100) AS numbers(i)
