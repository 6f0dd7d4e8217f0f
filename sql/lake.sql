-- Registers the files of an archive, which `ingestd archive` wrote, in a DuckLake, in their place. Each file is registered once: run this again
-- after the archiver has run. Start only one run at a time: DuckLake does not notice a file that is registered twice, and then counts its rows twice.
--
--   LOAD ducklake;
--   ATTACH 'ducklake:lake.ducklake' AS lake (DATA_PATH 'lake_files');
--   SET VARIABLE archive = '/mnt/archive/web-1';
--   SET VARIABLE source = 'request';
--   CREATE TABLE IF NOT EXISTS lake.request AS
--       FROM read_parquet('/mnt/archive/web-1/source=request/*/*/*.parquet', hive_partitioning = true, union_by_name = true) LIMIT 0;
--   .read sql/lake.sql
--
-- The catalog is called lake, and the table has the name of the source. If the source gets a column later, add it to the table with ALTER TABLE … ADD
-- COLUMN. If a statement fails, the ones after it register nothing.
SET VARIABLE lake_files = []::VARCHAR[];
SET VARIABLE lake_manifest = NULL;
SET VARIABLE lake_archive = rtrim(regexp_replace(getvariable('archive'), '/+', '/', 'g'), '/');
SET VARIABLE lake_registered = (SELECT coalesce(list(data_file), []) FROM ducklake_list_files('lake', getvariable('source')));
SET VARIABLE lake_manifest = (
    SELECT {'uuid': max(directory.uuid), 'files': CASE WHEN count(*) FILTER (source = getvariable('source')) > 0
        THEN coalesce(flatten(list(files) FILTER (source = getvariable('source') AND files IS NOT NULL)), []) END}
    FROM read_json(CASE WHEN starts_with(getvariable('lake_archive'), '/') THEN getvariable('lake_archive') || '/_manifest.jsonl'
            ELSE error(concat('the path of the archive is not absolute: ', coalesce(getvariable('archive'), 'NULL'))) END,
        maximum_object_size = 268_435_456, format = 'newline_delimited',
        columns = {directory: 'STRUCT(uuid VARCHAR)', source: 'VARCHAR', files: 'STRUCT(path VARCHAR)[]'})
);
-- The other folders from which files are registered.
SET VARIABLE lake_others = (
    SELECT coalesce(list(DISTINCT folder || '/_manifest.jsonl'), [])
    FROM (SELECT regexp_extract(unnest(getvariable('lake_registered')), '^(.*)/source=[^/]*/loom_date=[^/]*/loom_hour=[^/]*/[^/]*$', 1)
        AS folder)
    WHERE folder NOT IN ('', getvariable('lake_archive'))
);
-- One folder for each directory: the same archive by another path, or a second one of the directory, has the same rows.
SET VARIABLE lake_files = (
    WITH same AS (
        SELECT min(replace(filename, '/_manifest.jsonl', '')) AS folder
        FROM read_json([getvariable('lake_archive') || '/_manifest.jsonl'] || getvariable('lake_others'), maximum_object_size = 268_435_456,
            format = 'newline_delimited', filename = true, columns = {directory: 'STRUCT(uuid VARCHAR)'})
        WHERE directory.uuid = getvariable('lake_manifest').uuid AND filename IN getvariable('lake_others')
    )
    SELECT CASE
        WHEN getvariable('lake_manifest').files IS NULL
        THEN error(format('the archive ''{}'' has no source ''{}''; its _manifest.jsonl lists those that it has', getvariable('archive'),
            getvariable('source')))
        WHEN folder IS NOT NULL
        THEN error(format('''{}'' has rows that are registered already, from ''{}''; give that path', getvariable('archive'), folder))
        ELSE list_filter(list_transform(getvariable('lake_manifest').files, lambda file: getvariable('lake_archive') || '/' || file.path),
            lambda file: file NOT IN getvariable('lake_registered')) END
    FROM same
);
CALL ducklake_add_data_files('lake', getvariable('source'), getvariable('lake_files'), hive_partitioning => true, allow_missing => true);
SELECT len(getvariable('lake_files')) AS files_registered;
