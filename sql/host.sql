-- The macros of a served host, over the directory in LOOM_DIR, and the guard that lets a question use these macros and nothing else.
--
-- The guard works on DuckDB's own syntax tree of the question, so no spelling, comment or nesting gets past it. It has lists of
-- everything allowed, and refuses a statement, table, function or kind of node that is in no list. It is the second layer: the extension itself
-- reads only the served directory.

CREATE OR REPLACE MACRO host_scan(source, t_from := NULL, t_to := NULL, last := NULL, filter := NULL, around := NULL, width := NULL, index := NULL,
        v_min := NULL, v_max := NULL, at := NULL, labels := NULL, complete := NULL) AS TABLE
    SELECT * EXCLUDE (dir)
    FROM loom_scan(NULL::VARCHAR, source::VARCHAR, t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR,
        around := around::TIMESTAMPTZ[], width := width::INTERVAL, index := index::VARCHAR, v_min := v_min, v_max := v_max,
        at := "at"::UBIGINT, labels := labels::BOOLEAN, complete := complete::BOOLEAN);

CREATE OR REPLACE MACRO host_aggregate(source, index, bucket := NULL, points := NULL, partial := NULL, quantiles := NULL, approx := NULL,
        t_from := NULL, t_to := NULL, last := NULL, filter := NULL, v_min := NULL, v_max := NULL, at := NULL, complete := NULL) AS TABLE
    FROM loom_aggregate(NULL::VARCHAR, source::VARCHAR, index::VARCHAR, bucket := bucket::INTERVAL, points := points::BIGINT,
        partial := partial::BOOLEAN, quantiles := quantiles::DOUBLE[], approx := approx::BOOLEAN, t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, v_min := v_min, v_max := v_max, at := "at"::UBIGINT,
        complete := complete::BOOLEAN);

CREATE OR REPLACE MACRO host_histogram(source, index, bucket := NULL, points := NULL, partial := NULL, t_from := NULL, t_to := NULL,
        last := NULL, filter := NULL, at := NULL, complete := NULL) AS TABLE
    FROM loom_histogram(NULL::VARCHAR, source::VARCHAR, index::VARCHAR, bucket := bucket::INTERVAL, points := points::BIGINT,
        partial := partial::BOOLEAN, t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR,
        at := "at"::UBIGINT, complete := complete::BOOLEAN);

CREATE OR REPLACE MACRO host_rate(source, bucket := NULL, points := NULL, partial := NULL, t_from := NULL, t_to := NULL, last := NULL, filter := NULL,
        at := NULL, complete := NULL) AS TABLE
    FROM loom_rate(NULL::VARCHAR, source::VARCHAR, bucket := bucket::INTERVAL, points := points::BIGINT, partial := partial::BOOLEAN,
        t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, at := "at"::UBIGINT,
        complete := complete::BOOLEAN);

CREATE OR REPLACE MACRO host_top(source, index, n, least := NULL, t_from := NULL, t_to := NULL, last := NULL, filter := NULL, at := NULL,
        complete := NULL) AS TABLE
    SELECT * EXCLUDE (dir)
    FROM loom_top(NULL::VARCHAR, source::VARCHAR, index::VARCHAR, n::BIGINT, least := least::BOOLEAN, t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, at := "at"::UBIGINT, complete := complete::BOOLEAN);

CREATE OR REPLACE MACRO host_tail(source, n, filter := NULL) AS TABLE
    SELECT * EXCLUDE (dir) FROM loom_tail(NULL::VARCHAR, source::VARCHAR, n::BIGINT, filter := filter::VARCHAR);

CREATE OR REPLACE MACRO host_snapshot() AS TABLE SELECT * EXCLUDE (dir) FROM loom_snapshot(NULL::VARCHAR);
CREATE OR REPLACE MACRO host_sources() AS TABLE SELECT * EXCLUDE (dir) FROM loom_sources(NULL::VARCHAR);
CREATE OR REPLACE MACRO host_indexes() AS TABLE SELECT * EXCLUDE (dir) FROM loom_indexes(NULL::VARCHAR);
CREATE OR REPLACE MACRO host_losses() AS TABLE SELECT * EXCLUDE (dir) FROM loom_losses(NULL::VARCHAR);
CREATE OR REPLACE MACRO host_scan_stats() AS TABLE SELECT * EXCLUDE (dir) FROM loom_scan_stats();

-- The functions that a question may call in FROM. DuckDB has table functions and table macros with the names of other functions, so there are
-- two lists.
CREATE OR REPLACE MACRO host_tables() AS [
    'host_scan', 'host_aggregate', 'host_histogram', 'host_rate', 'host_top', 'host_tail', 'host_snapshot', 'host_sources',
    'host_indexes', 'host_losses', 'host_scan_stats', 'unnest'
];

-- The functions that a question may call in an expression. None reads a file, a setting, a variable, the catalog or another server, runs SQL
-- that it is given as text, or makes a value far longer than its arguments.
CREATE OR REPLACE MACRO host_functions() AS [
    'unnest',
    '+', '-', '*', '/', '//', '%', '^', '**', '||', '&', '|', '<<', '>>', '~', '@', '~~', '!~~', '~~~', '~~*', '!~~*',
    'like_escape', 'not_like_escape', 'ilike_escape', 'not_ilike_escape', 'regexp_full_match',
    'count', 'count_star', 'count_if', 'sum', 'fsum', 'min', 'max', 'avg', 'mean', 'median', 'mode', 'first', 'last', 'any_value',
    'arg_min', 'arg_max', 'min_by', 'max_by', 'bool_and', 'bool_or', 'list', 'array_agg', 'string_agg', 'histogram', 'entropy',
    'quantile', 'quantile_disc', 'quantile_cont', 'approx_quantile', 'approx_count_distinct', 'stddev', 'stddev_pop', 'stddev_samp',
    'variance', 'var_pop', 'var_samp', 'skewness', 'kurtosis', 'corr', 'covar_pop', 'covar_samp', 'regr_slope', 'regr_intercept',
    'row_number', 'rank', 'dense_rank', 'percent_rank', 'cume_dist', 'ntile', 'lag', 'lead', 'first_value', 'last_value', 'nth_value',
    'now', 'epoch', 'epoch_ms', 'epoch_us', 'epoch_ns', 'make_timestamp', 'make_timestamp_ns', 'make_timestamptz', 'to_timestamp',
    'time_bucket', 'date_trunc', 'date_part', 'date_diff', 'datediff', 'strftime', 'timezone', 'extract',
    'to_days', 'to_hours', 'to_minutes', 'to_seconds', 'to_milliseconds', 'to_microseconds',
    'year', 'month', 'day', 'hour', 'minute', 'second', 'millisecond', 'microsecond', 'dayofweek', 'dayname',
    'abs', 'ceil', 'ceiling', 'floor', 'round', 'trunc', 'sign', 'sqrt', 'ln', 'log', 'log2', 'log10', 'exp', 'pow', 'power', 'mod',
    'greatest', 'least', 'isnan', 'isinf', 'isfinite', 'hash', 'if', 'ifnull', 'nullif', 'coalesce',
    'lower', 'upper', 'length', 'len', 'substr', 'substring', 'left', 'right', 'trim', 'ltrim', 'rtrim', 'contains',
    'starts_with', 'ends_with', 'prefix', 'suffix', 'strpos', 'instr', 'position', 'split_part', 'concat',
    'regexp_matches', 'regexp_extract', 'hex', 'octet_length', 'encode', 'decode',
    'list_value', 'struct_pack', 'row', 'struct_extract', 'struct_extract_at', 'array_extract', 'list_extract', 'list_contains',
    'list_transform', 'list_apply', 'list_filter', 'list_sort', 'list_slice', 'array_slice', 'list_min', 'list_max', 'list_sum',
    'list_distinct',
    'json_extract', 'json_extract_string', 'json_value', '->', '->>', 'error'
];

-- The allowed kinds of nodes: of queries, tables, expressions and types. Parameters, PIVOT, DESCRIBE, SHOW and recursion are excluded.
CREATE OR REPLACE MACRO host_kinds() AS '(SELECT|SET_OPERATION|CTE)_NODE|(ORDER|LIMIT|LIMIT_PERCENT|DISTINCT)_MODIFIER|ORDER_DEFAULT|'
    || 'ASCENDING|DESCENDING|BASE_TABLE|TABLE_FUNCTION|EMPTY|EXPRESSION_LIST|JOIN|SUBQUERY|(COMPARE|CONJUNCTION|OPERATOR|WINDOW)_[A-Z_]+|'
    || 'FUNCTION|COLUMN_REF|POSITIONAL_REFERENCE|STAR|LAMBDA|CASE|CASE_EXPR|CAST|COLLATE|VALUE_CONSTANT|ARRAY_(EXTRACT|SLICE|CONSTRUCTOR)|'
    || 'STRUCT_EXTRACT|GROUPING_FUNCTION|(DECIMAL|LIST|STRUCT|ARRAY|STRING)_TYPE_INFO|TYPE|\{"id":.*';

CREATE OR REPLACE MACRO host_stray(found, allowed) AS list_any_value(list_filter(found, lambda name: name NOT IN allowed));

-- The first part of a question's syntax tree that no list allows, as a sentence; NULL if there is none. Each `$..key` finds that key
-- at every depth. Tables are only those that the question defines itself (WITH), by plain names. A name that the catalog has, such as
-- duckdb_logs, may not be defined: outside its WITH it would mean the catalog's. Neither may _, which means the command line's last result.
CREATE OR REPLACE MACRO host_refusal(tree) AS (
    WITH found AS (
        SELECT json_extract_string(tree, '$..type') AS kinds,
            list_transform(json_extract_string(tree, '$..function_name'), lambda name: lower(name)) AS functions,
            list_transform(json_extract_string(tree, '$..function.function_name'), lambda name: lower(name)) AS table_functions,
            list_transform(json_extract_string(tree, '$..table_name'), lambda name: lower(name)) AS tables,
            list_transform(json_extract_string(tree, '$..cte_map.map[*].key'), lambda name: lower(name)) AS defined,
            json_extract_string(tree, '$..schema') || json_extract_string(tree, '$..schema_name')
                || json_extract_string(tree, '$..catalog') || json_extract_string(tree, '$..catalog_name') AS qualifiers,
            (SELECT list(lower(view_name)) FROM duckdb_views()) AS views
    )
    SELECT CASE
        WHEN json_extract_string(tree, '$.error') IS DISTINCT FROM 'false'
            THEN coalesce(json_extract_string(tree, '$.error_message'), 'no syntax tree')
        WHEN json_array_length(tree, '$.statements') IS DISTINCT FROM 1 THEN 'it is not one statement'
        ELSE coalesce(
            'it calls ' || host_stray(table_functions, host_tables()),
            'it calls ' || host_stray(functions, host_functions() || host_tables()),
            'it names the schema or catalog ' || host_stray(qualifiers, ['', 'main']),
            'it reads the table ' || host_stray(tables, defined) || ', which it does not define',
            'it defines a table by the name ' || list_any_value(list_filter(defined,
                lambda name: NOT regexp_full_match(name, '_*[a-z][a-z0-9_]*') OR name IN views)),
            'it has a node of the kind ' || list_any_value(list_filter(kinds, lambda kind: NOT regexp_full_match(kind, host_kinds())))
        )
    END
    FROM found
);

-- Quack calls this before each statement for the statement to run instead of the question; NULL refuses it. A client that appends rows is
-- announced as an INSERT, for which Quack only uses whether it is refused.
CREATE OR REPLACE MACRO host_authorize(session, question) AS (
    SELECT CASE
        WHEN starts_with(question::VARCHAR, 'INSERT INTO ') THEN NULL
        WHEN refusal IS NULL THEN question::VARCHAR
        ELSE 'SELECT error(''' || replace('cannot answer the question: ' || refusal
            || '; ask one SELECT over host_scan and its kin, see sql/docs/hosts.md', '''', '''''') || ''')'
    END
    FROM (
        SELECT CASE WHEN length(question::VARCHAR) > 1_000_000 THEN 'it is longer than a million characters'
            WHEN contains(question::VARCHAR, chr(0)) THEN 'it has a zero byte'
            ELSE host_refusal(json_serialize_sql(question::VARCHAR)) END AS refusal
    )
);
