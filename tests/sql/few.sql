-- load: --ts t --index n
-- add: few_more.toml
-- A source with three records, too few for statistics in a summary, so that they are scanned; and beside it a source without records.
SELECT 1_700_000_000_000_000_000 + i AS t, i AS n FROM range(3) AS numbers(i)
