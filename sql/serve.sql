-- Serves one Loom directory by Quack: DuckDBs elsewhere can then ask questions about it, and do nothing else. `ingestd serve` runs this
-- file in DuckDB's command line, which serves until its standard input ends. The directory is that of LOOM_DIR. Before it come the LOADs of
-- loom, httpfs and quack, the limits, and two variables:
--
--   host_listen  where to listen, such as quack:localhost:9494
--   host_token   the token
--
-- The variable LOOM_SERVED of the environment names the same directory without links: the extension reads no other.
--
-- The database is the one that sql/host.sql wrote, opened for reading only. sql/README.md, Many hosts, describes the questions;
-- ingestd/docs/security.md says what a token grants.

.bail on
.mode list
.headers off

SELECT error('the database can be written; start duckdb with -readonly')
FROM duckdb_databases() WHERE database_name = current_database() AND NOT readonly;
SELECT error('the extension is not confined; set LOOM_SERVED to the directory without links') WHERE coalesce(getenv('LOOM_SERVED'), '') = '';
SELECT format('serve: {} at position {}', dir, position) FROM loom_snapshot(NULL::VARCHAR);

-- From here on no statement reaches a file, a setting or another extension, also if the guard were wrong. A question that needs more
-- memory than there is fails in place of filling a disk. 2.0 reads Loom directories by the list of allowed ones.
SET GLOBAL quack_authorization_function = 'host_authorize';
SET GLOBAL allowed_directories = CASE WHEN version() < 'v2' THEN [] ELSE [getenv('LOOM_DIR')] END;
SET GLOBAL temp_directory = '';
-- Hosts in different time zones mean the same by a time without a zone and by a day.
SET GLOBAL TimeZone = 'UTC';
SET GLOBAL enable_external_access = false;
SET GLOBAL lock_configuration = true;

SELECT 'serve: ' || listen_uri FROM quack_serve(getvariable('host_listen'), token := getvariable('host_token'));
RESET VARIABLE host_token;
