-- Registers the files of an archive that `ingestd archive` wrote in a DuckLake, where they stand. Each file is registered once: run this again
-- after the archiver has run. One run at a time: DuckLake does not notice a file that is registered twice, and its rows count twice then.
--
--   LOAD ducklake;
--   ATTACH 'ducklake:lake.ducklake' AS lake (DATA_PATH 'lake_files');
--   SET VARIABLE archive = '/mnt/archive/web-1';
--   SET VARIABLE source = 'request';
--   CREATE TABLE IF NOT EXISTS lake.request AS
--       FROM read_parquet('/mnt/archive/web-1/source=request/*/*/*.parquet', hive_partitioning = true, union_by_name = true) LIMIT 0;
--   .read sql/lake.sql
--
-- The catalog is called lake, and the table like the source. Give the table a column that the source got later with ALTER TABLE … ADD COLUMN.
BEGIN;
-- One way to write the path of a file, by which it is found again.
SET VARIABLE lake_archive = rtrim(regexp_replace(getvariable('archive'), '/+', '/', 'g'), '/');
SELECT error('the path of the archive is not absolute: ' || getvariable('archive')) WHERE NOT starts_with(getvariable('lake_archive'), '/');
SET VARIABLE lake_files = (
    SELECT coalesce(list(getvariable('lake_archive') || '/' || file.path ORDER BY file.path), []) FROM (
        SELECT unnest(source.files) AS file FROM (
            SELECT unnest(sources) AS source FROM read_json(getvariable('lake_archive') || '/_manifest.json', maximum_object_size = 268_435_456,
                columns = {sources: 'STRUCT(name VARCHAR, files STRUCT(path VARCHAR)[])[]'})
        ) WHERE source.name = getvariable('source')
    ) WHERE getvariable('lake_archive') || '/' || file.path NOT IN (SELECT data_file FROM ducklake_list_files('lake', getvariable('source')))
);
CALL ducklake_add_data_files('lake', getvariable('source'), getvariable('lake_files'), hive_partitioning => true, allow_missing => true);
COMMIT;
SELECT len(getvariable('lake_files')) AS files_registered;
