-- Live: the slowest reads of files, and the insertions into the page cache, of the last seconds; each answered from summaries.
--
--   duckdb -unsigned -cmd "LOAD 'dist/duckdb-v1/loom.duckdb_extension'; SET VARIABLE dir = 'rocksdb.loom'; SET VARIABLE seconds = 10" \
--       -f tests/cases/rocksdb/windows.sql

SET VARIABLE t_to = coalesce(getvariable('t_to'), now());
SET VARIABLE t_from = getvariable('t_to') - to_seconds(getvariable('seconds'));
SET VARIABLE position = coalesce(getvariable('position'), (SELECT position FROM loom_snapshot(getvariable('dir'))));

SELECT count AS preads, max AS max_ns, p99_99 AS p99_99_ns
FROM loom_aggregate(getvariable('dir'), 'syscall', 'pread64', t_from := getvariable('t_from'), t_to := getvariable('t_to'),
    quantiles := [0.9999], at := getvariable('position'), complete := true);

SELECT count AS insertions, sum AS pages
FROM loom_aggregate(getvariable('dir'), 'pagecache', 'added', t_from := getvariable('t_from'), t_to := getvariable('t_to'),
    at := getvariable('position'), complete := true);
