-- Macros for the drill-down. In DuckDB 2.0 the extension has them once it is loaded; in earlier versions read the file:
--
--   .read sql/macros.sql
--
-- They are temporary: nothing is written into a database. The first argument is the directory (NULL: the setting loom_dir, or else the
-- environment variable LOOM_DIR). Named arguments limit the time: t_from and t_to (half open), last, and at, a position. Arguments
-- are constants, getvariable() or prepared parameters, as for the functions that the macros call; the answers are as exact.

-- The position up to which records are published now: SET VARIABLE position = loom_position('demo.loom').
CREATE OR REPLACE TEMP MACRO loom_position(dir) AS (
    SELECT now.position FROM loom_snapshot(dir) AS now
);

-- The least value that at least the fraction q of an index's values does not exceed: loom_quantile(dir, 'request', 'latency', 0.9999).
-- With approx := true it is at most the width of a bin off, and much faster over long windows.
CREATE OR REPLACE TEMP MACRO loom_quantile(dir, source, index, q, t_from := NULL, t_to := NULL, last := NULL, approx := NULL, at := NULL) AS (
    SELECT COLUMNS('^p[0-9]')
    FROM loom_aggregate(dir, source::VARCHAR, index::VARCHAR, quantiles := [q::DOUBLE], t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, approx := approx::BOOLEAN, at := "at")
);

-- The records whose value of an index is v_min or greater.
CREATE OR REPLACE TEMP MACRO loom_above(dir, source, index, v_min, t_from := NULL, t_to := NULL, last := NULL, at := NULL) AS TABLE
    FROM loom_scan(dir, source::VARCHAR, index := index::VARCHAR, v_min := v_min, t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, at := "at");

-- The times of those records, as a list: SET VARIABLE hits = loom_hits(dir, 'request', 'latency', getvariable('p')).
CREATE OR REPLACE TEMP MACRO loom_hits(dir, source, index, v_min, t_from := NULL, t_to := NULL, last := NULL, at := NULL) AS (
    SELECT coalesce(list(found.ts ORDER BY found.ts_ns), [])
    FROM loom_scan(dir, source::VARCHAR, index := index::VARCHAR, v_min := v_min, t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, at := "at") AS found
);

-- The records of another source within width of each hit, with the hit and the time since it. A record near two hits appears twice.
CREATE OR REPLACE TEMP MACRO loom_near(dir, source, hits, width, at := NULL) AS TABLE
    SELECT around.hit, found.ts - around.hit AS since_hit, found.*
    FROM (SELECT DISTINCT unnest(hits::TIMESTAMPTZ[]) AS hit) AS around
    JOIN loom_scan(dir, source::VARCHAR, around := coalesce(hits::TIMESTAMPTZ[], []), width := width::INTERVAL, at := "at") AS found
        ON found.ts >= around.hit - width::INTERVAL AND found.ts < around.hit + width::INTERVAL;

-- The records of a window, each with the latest record of another source up to its time, which is at most
-- lookback (a second) before the window: a STRUCT named latest, NULL where there is none. A longer lookback reads as much more of the
-- other source. Without a window both sources are read whole.
CREATE OR REPLACE TEMP MACRO loom_asof(dir, source, other, t_from := NULL, t_to := NULL, last := NULL, lookback := NULL, at := NULL) AS TABLE
    SELECT found.*, CASE WHEN latest.ts_ns IS NOT NULL THEN latest END AS latest
    FROM loom_scan(dir, source::VARCHAR, t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, at := "at") AS found
    ASOF LEFT JOIN loom_scan(dir, other::VARCHAR, t_to := t_to::TIMESTAMPTZ, at := "at",
        t_from := t_from::TIMESTAMPTZ - greatest(coalesce(lookback::INTERVAL, INTERVAL 1 SECOND), INTERVAL 0 SECOND),
        last := last::INTERVAL + greatest(coalesce(lookback::INTERVAL, INTERVAL 1 SECOND), INTERVAL 0 SECOND)) AS latest
        ON found.ts_ns >= latest.ts_ns
    WHERE CASE WHEN lookback::INTERVAL < INTERVAL 0 SECOND THEN error('loom_asof: lookback must not be negative: it is ' || lookback) ELSE true END;

-- The usual quantiles of an index over time; approx as for loom_quantile.
CREATE OR REPLACE TEMP MACRO loom_percentiles(dir, source, index, bucket, t_from := NULL, t_to := NULL, last := NULL, approx := NULL, at := NULL) AS TABLE
    SELECT found.bucket, found.count, found.p50, found.p90, found.p99, found.p99_9, found.max
    FROM loom_aggregate(dir, source::VARCHAR, index::VARCHAR, bucket := bucket::INTERVAL, quantiles := [0.5, 0.9, 0.99, 0.999],
        t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, approx := approx::BOOLEAN, at := "at") AS found
    ORDER BY found.bucket;

-- A heat map as text: one row for each bucket, one character for each power of two from the least value on. A darker character has more
-- values, on a logarithmic scale that all buckets share; a dot has none. The first character begins at least; values below 1 count as 1.
CREATE OR REPLACE TEMP MACRO loom_heatmap(dir, source, index, bucket, t_from := NULL, t_to := NULL, last := NULL, at := NULL) AS TABLE
    WITH cells AS MATERIALIZED (
        SELECT found.t1 AS span, floor(log2(greatest(found.lower, 1)))::INTEGER AS band, sum(found.count)::BIGINT AS n
        FROM loom_heat(dir, source::VARCHAR, index::VARCHAR, bucket := bucket::INTERVAL, bands := 65_536, t_from := t_from::TIMESTAMPTZ,
            t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, at := "at") AS found
        GROUP BY ALL
    ), grid AS (
        SELECT spans.span, bands.band
        FROM (SELECT DISTINCT span FROM cells) AS spans,
            (SELECT unnest(range(min(band), max(band) + 1))::INTEGER AS band FROM cells) AS bands
    )
    SELECT grid.span AS bucket, sum(cells.n)::BIGINT AS count, 2 ** min(grid.band) AS least,
        string_agg('·░▒▓█'[1 + coalesce(ceil(4 * ln(1 + cells.n) / ln(1 + (SELECT max(n) FROM cells))), 0)::INTEGER], ''
            ORDER BY grid.band) AS heat
    FROM grid LEFT JOIN cells USING (span, band)
    GROUP BY grid.span
    ORDER BY grid.span;
