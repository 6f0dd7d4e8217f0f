-- Queries many hosts that sql/serve.sql serves, from a DuckDB with quack and httpfs loaded. List the hosts once, and read this file:
--
--   CREATE SECRET web_1 (TYPE quack, TOKEN '…', SCOPE 'quack:localhost:9494');
--   SET VARIABLE fleet_hosts = MAP {'web-1': 'quack:localhost:9494', 'web-2': 'quack:localhost:9495'};
--   .read sql/fleet.sql
--
-- The hosts get the text of a question and return answers, so each host prunes its own data. One statement queries the hosts one after another;
-- the Python class loom_duckdb.Fleet queries them at the same time. If a host fails, the statement fails and names its address. DuckDB runs a
-- question when it binds it, so EXPLAIN and CREATE VIEW query the hosts too. In a question, {at} stands for the host's position.

-- A text as a constant of SQL.
CREATE OR REPLACE TEMP MACRO fleet_quoted(text) AS coalesce('''' || replace(text::VARCHAR, '''', '''''') || '''', 'NULL');

-- A name in quotes.
CREATE OR REPLACE TEMP MACRO fleet_name(name) AS '"' || replace(name::VARCHAR, '"', '""') || '"';

-- A value as a constant of its own type.
CREATE OR REPLACE TEMP MACRO fleet_typed(value) AS
    CASE WHEN value IS NULL THEN 'NULL' ELSE fleet_quoted(value) || '::' || typeof(value) END;

-- The fault of a MAP of hosts, as a sentence; NULL if there is none.
CREATE OR REPLACE TEMP MACRO fleet_wrong(hosts) AS (
    WITH listed AS (SELECT unnest(map_keys(hosts)) AS host, unnest(map_values(hosts)) AS address),
        scopes AS (SELECT unnest(CASE WHEN scope = [] THEN [''] ELSE scope END) AS scope FROM duckdb_secrets() WHERE type = 'quack'),
        wrong AS (
            SELECT host, CASE WHEN NOT starts_with(address, 'quack:')
                THEN format('the address ''{}'' of host {} does not begin with quack:; write quack:localhost:9494', address, host)
                ELSE format('there is no token for host {}; CREATE SECRET (TYPE quack, TOKEN ''…'', SCOPE ''{}'')', host, address)
                END AS what
            FROM listed WHERE NOT starts_with(address, 'quack:') OR NOT EXISTS (FROM scopes WHERE starts_with(address, scope))
            UNION ALL
            SELECT min(host), format('{} and {} are both {}, whose records would count twice; name each host once', min(host), max(host),
                address)
            FROM listed GROUP BY address HAVING count(*) > 1
        )
    SELECT CASE WHEN (SELECT count(*) FROM listed) = 0
        THEN 'there are no hosts; SET VARIABLE fleet_hosts = MAP {''web-1'': ''quack:localhost:9494''}, then read fleet.sql'
        ELSE (SELECT arg_min(what, host) FROM wrong) END
);

-- The statement that queries every host of a MAP, with a place for the question, at the positions of another MAP or at none. A host's error shows
-- the beginning of the question, so a comment there names the host. Columns go by name from the first line on, so a column host of one host
-- is refused like those of two.
CREATE OR REPLACE TEMP MACRO fleet_plan(hosts, positions) AS coalesce(error(fleet_wrong(hosts)), array_to_string(
    ['SELECT NULL::VARCHAR AS host WHERE false'] || list_transform(map_entries(hosts), lambda host: 'SELECT '
        || fleet_quoted(host.key) || ' AS host, * FROM quack_query(' || fleet_quoted(host.value) || ', '
        || fleet_quoted('/* ' || replace(host.key, '*/', '') || ' */ ')
        || ' || replace($question$, ''{at}'', ''' || coalesce(positions[host.key]::VARCHAR, 'NULL') || '''))'),
    ' UNION ALL BY NAME '));

-- The answers of all hosts to one SELECT over host_scan and similar macros, with the column host.
CREATE OR REPLACE TEMP MACRO fleet_ask(question) AS TABLE
    FROM query(replace(getvariable('fleet'), '$question$',
        fleet_quoted(coalesce(question, error('the question is NULL; ask one SELECT over host_scan and its kin')))));

-- SET VARIABLE fleet = fleet_live(): later questions read the records that exist when they run.
CREATE OR REPLACE TEMP MACRO fleet_live() AS fleet_plan(getvariable('fleet_hosts')::MAP(VARCHAR, VARCHAR), MAP {}::MAP(VARCHAR, UBIGINT));
SET VARIABLE fleet = fleet_live();

-- SET VARIABLE fleet = fleet_frozen(): later questions read each host at its current position. The question is a
-- parameter because DuckDB runs constant ones when it creates a macro.
CREATE OR REPLACE TEMP MACRO fleet_frozen(question := 'FROM host_snapshot()') AS (
    SELECT fleet_plan(getvariable('fleet_hosts')::MAP(VARCHAR, VARCHAR), map(list(host), list(position))) FROM fleet_ask(question)
);

-- Each source, or the one given: the number of hosts with it, its records and times; differs lists the fields that not every host has with the
-- same type.
CREATE OR REPLACE TEMP MACRO fleet_sources(source := NULL) AS TABLE
    WITH found AS (FROM fleet_ask('FROM host_sources()' || coalesce(' WHERE name = ' || nullif(fleet_quoted(source), 'NULL'), ''))),
        fields AS (SELECT name, unnest(string_split(replace(fields, ' nullable', ''), ', ')) AS field, host FROM found),
        sources AS (SELECT name, count(*) AS hosts, sum(records)::BIGINT AS records, min(first_ts) AS first_ts, max(last_ts) AS last_ts
            FROM found GROUP BY name),
        differences AS (
            SELECT name, list(field || ' (only ' || on_hosts || ')' ORDER BY field) AS differs
            FROM (SELECT name, field, count(*) AS n, string_agg(host, ', ' ORDER BY host) AS on_hosts FROM fields GROUP BY name, field)
            JOIN sources USING (name) WHERE n < sources.hosts GROUP BY name
        )
    SELECT sources.*, coalesce(differs, []) AS differs FROM sources LEFT JOIN differences USING (name) ORDER BY name;

-- True; an error if hosts have different types for a field of the source, because one column cannot have both.
CREATE OR REPLACE TEMP MACRO fleet_alike(source) AS (
    SELECT CASE WHEN len(differs) = len(list_distinct(list_transform(differs, lambda each: regexp_extract(each, '^(.*) \S+ \(only ', 1))))
        THEN true ELSE error(concat('the hosts'' source ', source, ' differs: ', array_to_string(differs, '; '),
            '; ask the hosts apart, or cast in a question: FROM fleet_ask(''SELECT … FROM host_scan(…)'')')) END
    FROM fleet_sources(source := source)
);

-- An instant as text for a host.
CREATE OR REPLACE TEMP MACRO fleet_instant(ts) AS coalesce('make_timestamptz(' || epoch_us(ts::TIMESTAMPTZ) || ')', 'NULL');

-- The index, as every host defines it: {'field': …}, the field that it summarises, NULL if it only counts. It queries each host once. An error if
-- hosts define it in different ways, or if the types of the field differ, because such values do not compare exactly.
CREATE OR REPLACE TEMP MACRO fleet_index(source, index) AS (
    WITH found AS MATERIALIZED (
            SELECT host, definition, definition[1] AS field, list_filter(string_split(replace(fields, ' nullable', ''), ', '),
                lambda each: starts_with(each, definition[1] || ' '))[1][len(definition[1]) + 2:] AS type
            FROM fleet_ask(concat('SELECT (SELECT fields FROM host_sources() WHERE name = ', fleet_quoted(source), ') AS fields, ',
                '(SELECT arg_max([value, filter, bins], since_addr) FROM host_indexes() WHERE source = ', fleet_quoted(source),
                ' AND index = ', fleet_quoted(index), ') AS definition FROM host_snapshot()'))
        ),
        defined AS (FROM found WHERE definition IS NOT NULL),
        ways AS (SELECT string_agg(host, ', ' ORDER BY host) AS hosts FROM defined GROUP BY definition),
        types AS (SELECT type || ' on ' || string_agg(host, ', ' ORDER BY host) AS hosts FROM defined GROUP BY type)
    SELECT CASE
        WHEN (SELECT count(*) FROM ways) > 1 THEN error(concat('the hosts define the index ', index, ' of ', source, ' in different ways: ',
            (SELECT string_agg(hosts, ' unlike ' ORDER BY hosts) FROM ways), '; compare them with FROM fleet_ask(''FROM host_indexes()'')'))
        WHEN (SELECT count(DISTINCT type) FROM defined) > 1 THEN error(concat('the field ', (SELECT any_value(field) FROM defined), ' of ',
            source, ', which the index ', index, ' summarises, is ', (SELECT string_agg(hosts, '; ' ORDER BY hosts) FROM types),
            '; ask the hosts apart'))
        ELSE {'field': (SELECT any_value(field) FROM defined)} END
);

-- A filter as a parameter of a question; nothing without one.
CREATE OR REPLACE TEMP MACRO fleet_filter(filter) AS coalesce(', filter := ' || nullif(fleet_quoted(filter), 'NULL'), '');

-- Exact aggregates of an index over all hosts; with bucket, a row for each bucket, and otherwise one row whose bucket is NULL.
CREATE OR REPLACE TEMP MACRO fleet_aggregate(source, index, bucket := NULL, t_from := NULL, t_to := NULL, filter := NULL) AS TABLE
    SELECT found.bucket, sum(found.count)::BIGINT AS count, sum(found.sum) AS sum, min(found.min) AS min, max(found.max) AS max,
        sum(found.sum) / sum(found.count) AS avg
    FROM fleet_ask(concat('FROM host_aggregate(', fleet_quoted(source), ', ', fleet_quoted(index), ', bucket := ',
        fleet_quoted(bucket::INTERVAL), ', t_from := ', fleet_instant(t_from), ', t_to := ', fleet_instant(t_to), fleet_filter(filter),
        ', at := {at}) SELECT ',
        CASE WHEN bucket IS NULL THEN 'NULL::TIMESTAMPTZ AS ' ELSE '' END, 'bucket, count, sum, min, max')) AS found
    WHERE fleet_index(source, index) IS NOT NULL
    GROUP BY found.bucket ORDER BY found.bucket;

-- The number as written, with 15 decimal places: 0.07 of 100 is 7, but the product of doubles is greater.
CREATE OR REPLACE TEMP MACRO fleet_decimal(q) AS CASE WHEN q::DOUBLE BETWEEN 0 AND 1 THEN q::VARCHAR::DECIMAL(18, 15)
    ELSE error(format('the quantile {} is not between 0 and 1', coalesce(q::VARCHAR, 'NULL'))) END;

-- The first round of an exact quantile: the bin that holds its rank, from the bins of all hosts. Hosts with different bins are refused.
-- Without values, the rank and the quantile are NULL. The bin keeps the window and the filter for the second round.
--
--   SET VARIABLE fleet = fleet_frozen();
--   SET VARIABLE bin = fleet_bin('request', 'latency_us', 0.9999);
--   SELECT fleet_quantile('request', 'latency_us', getvariable('bin'));
CREATE OR REPLACE TEMP MACRO fleet_bin(source, index, q, t_from := NULL, t_to := NULL, filter := NULL) AS (
    WITH found AS MATERIALIZED (FROM fleet_ask(concat('FROM host_histogram(', fleet_quoted(source), ', ', fleet_quoted(index),
            ', t_from := ', fleet_instant(t_from), ', t_to := ', fleet_instant(t_to), fleet_filter(filter),
            ', at := {at}) SELECT lower, upper, count'))),
        merged AS (SELECT lower, upper, sum(count) AS count FROM found WHERE count > 0 GROUP BY lower, upper),
        counted AS (SELECT *, sum(count) OVER (ORDER BY lower NULLS FIRST) AS reached FROM merged),
        wanted AS (SELECT greatest(1, ceil(fleet_decimal(q) * sum(count)::DECIMAL(20, 0))) AS rank FROM found),
        defined AS (SELECT fleet_index(source, index).field AS field)
    SELECT CASE
        WHEN field IS NULL THEN error(concat('the index ', index, ' of ', source,
            ' only counts records and has no values; fleet_aggregate counts them'))
        ELSE {'lower': lower, 'upper': upper, 'rank': (rank - reached + count)::BIGINT, 'count': count::BIGINT, 'field': field,
            't_from': t_from::TIMESTAMPTZ, 't_to': t_to::TIMESTAMPTZ, 'filter': filter::VARCHAR}
    END
    FROM defined, wanted LEFT JOIN counted ON reached >= rank ORDER BY reached LIMIT 1
);

-- The field that the index of a bin summarises.
CREATE OR REPLACE TEMP MACRO fleet_field(bin) AS coalesce(fleet_name(bin['field']),
    error('the bin is NULL; SET VARIABLE bin = fleet_bin(…) first'));

-- The second round: the values of that bin, of which the rank picks one. It equals quantile_disc over the records of all hosts; a label
-- counts as its number. It is an error if the values of the bin have changed since it was found.
CREATE OR REPLACE TEMP MACRO fleet_quantile(source, index, bin) AS (
    SELECT CASE WHEN coalesce(max(reached), 0) <> bin['count']
        THEN error(concat('the hosts have other records in the bin than fleet_bin found; SET VARIABLE fleet = fleet_frozen(), ',
            'and find the bin again'))
        ELSE arg_min(value, reached) FILTER (reached >= bin['rank']) END
    FROM (
        SELECT value, sum(n) OVER (ORDER BY value) AS reached
        FROM fleet_ask(concat('FROM host_scan(', fleet_quoted(source), ', index := ', fleet_quoted(index), ', v_min := ',
            fleet_typed(bin['lower']), ', v_max := ', fleet_typed(bin['upper']), ', t_from := ', fleet_instant(bin['t_from']), ', t_to := ',
            fleet_instant(bin['t_to']), fleet_filter(bin['filter']), ', at := {at}, labels := false) AS found SELECT found.',
            fleet_field(bin), ' AS value, count(*) AS n',
            coalesce(' WHERE found.' || fleet_field(bin) || ' >= ' || nullif(fleet_typed(bin['lower']), 'NULL'), ' WHERE true'),
            coalesce(' AND found.' || fleet_field(bin) || ' < ' || nullif(fleet_typed(bin['upper']), 'NULL'), ''), ' GROUP BY ALL'))
    )
);

-- A count as text.
CREATE OR REPLACE TEMP MACRO fleet_count(n) AS coalesce(n::BIGINT, error('n is NULL; give a number of records'))::VARCHAR;

-- The n records with the greatest values of an index on all hosts; field is the index's field.
CREATE OR REPLACE TEMP MACRO fleet_top(source, index, field, n, filter := NULL) AS TABLE
    SELECT * EXCLUDE (fleet_value)
    FROM fleet_ask(concat('FROM host_top(', fleet_quoted(source), ', ', fleet_quoted(index), ', ', fleet_count(n),
        fleet_filter(filter), ', at := {at}) SELECT *, ', coalesce(fleet_name(field), error('field is NULL; name the field of the index')),
        ' AS fleet_value'))
    WHERE fleet_index(source, index).field = field OR error(concat('the index ', index, ' of ', source, ' does not summarise ', field,
        '; name the field of the index, which FROM fleet_ask(''FROM host_indexes()'') shows')) AND fleet_alike(source)
    ORDER BY CASE WHEN typeof(fleet_value) = 'VARCHAR'
        THEN error(concat('cannot order records by ', field, ': it is text, and an index goes by numbers; ask FROM host_top on each host'))
        ELSE fleet_value END DESC, ts_ns LIMIT n;

-- The latest n records of a source on all hosts, the newest first.
CREATE OR REPLACE TEMP MACRO fleet_tail(source, n, filter := NULL) AS TABLE
    FROM fleet_ask(concat('FROM host_tail(', fleet_quoted(source), ', ', fleet_count(n), fleet_filter(filter), ')'))
    WHERE fleet_alike(source) ORDER BY ts_ns DESC LIMIT n;

-- The times around which records are read, and the width.
CREATE OR REPLACE TEMP MACRO fleet_times(hits) AS coalesce(hits::TIMESTAMPTZ[], error('hits is NULL; give a list of times'));
CREATE OR REPLACE TEMP MACRO fleet_width(width) AS coalesce(width::INTERVAL,
    error('width is NULL; give an interval, such as INTERVAL 1 SECOND'));

-- The records of a source on all hosts within width of some times from another source, with the time as hit and the time since it.
CREATE OR REPLACE TEMP MACRO fleet_near(source, hits, width, filter := NULL) AS TABLE
    SELECT near.hit, found.ts - near.hit AS since_hit, found.*
    FROM (SELECT DISTINCT unnest(fleet_times(hits)) AS hit) AS near
    JOIN fleet_ask(concat('FROM host_scan(', fleet_quoted(source), ', around := ', fleet_quoted(fleet_times(hits)), '::TIMESTAMPTZ[], ',
            'width := ', fleet_quoted(fleet_width(width)), fleet_filter(filter), ', at := {at})')) AS found
        ON found.ts >= near.hit - width::INTERVAL AND found.ts < near.hit + width::INTERVAL
    WHERE fleet_alike(source);
