-- Serves one Loom directory by Quack: other DuckDBs can then query it, and do nothing else. `ingestd serve` runs this
-- file in DuckDB's command line, which serves until its standard input ends. The directory is that of LOOM_DIR. The LOADs of loom,
-- httpfs and quack, the limits and two variables come before this file:
--
--   host_listen  the address to listen on, such as quack:localhost:9494
--   host_token   the token
--
-- The variable LOOM_SERVED of the environment names the same directory without links: the extension reads no other.
--
-- The database is the one that sql/host.sql wrote, opened for reading only. sql/docs/hosts.md describes the questions;
-- ingestd/docs/security.md lists the rights of a token.

.bail on
.mode list
.headers off

SELECT error('the database can be written; start duckdb with -readonly')
FROM duckdb_databases() WHERE database_name = current_database() AND NOT readonly;
SELECT error('the extension is not confined; set LOOM_SERVED to the directory without links') WHERE coalesce(getenv('LOOM_SERVED'), '') = '';
SELECT format('serve: {} at position {}', dir, position) FROM loom_snapshot(NULL::VARCHAR);

-- From here on no statement can use a file, a setting or another extension, even if the guard has a fault. A question that needs more memory
-- fails instead of filling a disk. 2.0 reads Loom directories in the list of allowed ones.
SET GLOBAL quack_authorization_function = 'host_authorize';
SET GLOBAL allowed_directories = CASE WHEN version() < 'v2' THEN [] ELSE [getenv('LOOM_DIR')] END;
SET GLOBAL temp_directory = '';
-- A time without a zone and a day mean the same on hosts in different time zones.
SET GLOBAL TimeZone = 'UTC';
SET GLOBAL enable_external_access = false;
SET GLOBAL lock_configuration = true;

SELECT 'serve: ' || listen_uri FROM quack_serve(getvariable('host_listen'), token := getvariable('host_token'));
RESET VARIABLE host_token;
