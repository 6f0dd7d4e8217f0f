-- Questions to many hosts that sql/serve.sql serves, for a DuckDB with quack and httpfs loaded. List the hosts once, and read this file:
--
--   CREATE SECRET web_1 (TYPE quack, TOKEN '…', SCOPE 'quack:localhost:9494');
--   SET VARIABLE fleet_hosts = MAP {'web-1': 'quack:localhost:9494', 'web-2': 'quack:localhost:9495'};
--   .read sql/fleet.sql
--
-- Text goes to the hosts and answers come back, so each host prunes its own data. One statement asks the hosts one after another; the
-- Python class loom_duckdb.Fleet asks them at the same time. If a host fails, the statement fails and names its address. DuckDB runs a
-- question when it binds it: EXPLAIN and CREATE VIEW ask the hosts too. In a question, {at} is the host's position.

-- A text as a constant of SQL.
CREATE OR REPLACE TEMP MACRO fleet_quoted(text) AS coalesce('''' || replace(text::VARCHAR, '''', '''''') || '''', 'NULL');

-- The statement that asks every host of a MAP, with a place for the question, at the positions of another MAP or at none.
CREATE OR REPLACE TEMP MACRO fleet_plan(hosts, positions) AS array_to_string(
    list_transform(map_entries(hosts), lambda host: 'SELECT ' || fleet_quoted(host.key) || ' AS host, * FROM quack_query('
        || fleet_quoted(host.value) || ', replace($question$, ''{at}'', ''' || coalesce(positions[host.key]::VARCHAR, 'NULL') || '''))'),
    ' UNION ALL BY NAME ');

-- Every host's answer to one SELECT over host_scan and its kin, with the column host.
CREATE OR REPLACE TEMP MACRO fleet_ask(question) AS TABLE
    FROM query(replace(getvariable('fleet'), '$question$', fleet_quoted(question)));

-- SET VARIABLE fleet = fleet_live(): the questions from here on read what is there when they are asked.
CREATE OR REPLACE TEMP MACRO fleet_live() AS fleet_plan(getvariable('fleet_hosts'), MAP {}::MAP(VARCHAR, UBIGINT));
SET VARIABLE fleet = fleet_live();

-- SET VARIABLE fleet = fleet_frozen(): the questions from here on read each host at the position that it has now. The question is a
-- parameter because DuckDB asks constant ones when it creates a macro.
CREATE OR REPLACE TEMP MACRO fleet_frozen(question := 'FROM host_snapshot()') AS (
    SELECT fleet_plan(getvariable('fleet_hosts'), map(list(host), list(position))) FROM fleet_ask(question)
);

-- Each source, or the one that is named: on how many hosts it is and how much it has; differs names the fields that not every host has with the same type.
CREATE OR REPLACE TEMP MACRO fleet_sources(source := NULL) AS TABLE
    WITH found AS (FROM fleet_ask('FROM host_sources()' || CASE WHEN source IS NULL THEN '' ELSE ' WHERE name = ' || fleet_quoted(source) END)),
        fields AS (SELECT name, unnest(string_split(replace(fields, ' nullable', ''), ', ')) AS field, host FROM found),
        sources AS (SELECT name, count(*) AS hosts, sum(records)::BIGINT AS records, min(first_ts) AS first_ts, max(last_ts) AS last_ts
            FROM found GROUP BY name),
        differences AS (
            SELECT name, list(field || ' (only ' || on_hosts || ')' ORDER BY field) AS differs
            FROM (SELECT name, field, count(*) AS n, string_agg(host, ', ' ORDER BY host) AS on_hosts FROM fields GROUP BY name, field)
            JOIN sources USING (name) WHERE n < sources.hosts GROUP BY name
        )
    SELECT sources.*, coalesce(differs, []) AS differs FROM sources LEFT JOIN differences USING (name) ORDER BY name;

-- An instant as text for a host.
CREATE OR REPLACE TEMP MACRO fleet_instant(ts) AS coalesce('make_timestamptz(' || epoch_us(ts::TIMESTAMPTZ) || ')', 'NULL');

-- Exact aggregates of an index over all hosts; with bucket, a row for each bucket, and otherwise one row whose bucket is NULL.
CREATE OR REPLACE TEMP MACRO fleet_aggregate(source, index, bucket := NULL, t_from := NULL, t_to := NULL) AS TABLE
    SELECT found.bucket, sum(found.count)::BIGINT AS count, sum(found.sum) AS sum, min(found.min) AS min, max(found.max) AS max,
        sum(found.sum) / sum(found.count) AS avg
    FROM fleet_ask(concat('SELECT ', CASE WHEN bucket IS NULL THEN 'NULL::TIMESTAMPTZ AS ' ELSE '' END, 'bucket, count, sum, min, max ',
        'FROM host_aggregate(', fleet_quoted(source), ', ', fleet_quoted(index), ', bucket := ', fleet_quoted(bucket::INTERVAL),
        ', t_from := ', fleet_instant(t_from), ', t_to := ', fleet_instant(t_to), ', at := {at})')) AS found
    GROUP BY found.bucket ORDER BY found.bucket;

-- The number as it is written, with 15 decimal places: 0.07 of 100 is 7, and the product of doubles is more.
CREATE OR REPLACE TEMP MACRO fleet_decimal(q) AS q::VARCHAR::DECIMAL(18, 15);

-- The first round of an exact quantile: the bin that holds its rank, from the bins of all hosts. Hosts with different bins are refused.
--
--   SET VARIABLE fleet = fleet_frozen();
--   SET VARIABLE bin = fleet_bin('request', 'latency_us', 0.9999);
--   SELECT fleet_quantile('request', 'latency_us', getvariable('bin'));
CREATE OR REPLACE TEMP MACRO fleet_bin(source, index, q, t_from := NULL, t_to := NULL) AS (
    WITH found AS MATERIALIZED (FROM fleet_ask(concat('SELECT bins.lower, bins.upper, bins.count, defined.value AS field, defined.definition ',
            'FROM host_histogram(', fleet_quoted(source), ', ', fleet_quoted(index), ', t_from := ', fleet_instant(t_from), ', t_to := ',
            fleet_instant(t_to), ', at := {at}) AS bins, (SELECT arg_max(value, since_addr) AS value, ',
            'hash(arg_max(concat(value, '' '', filter, '' '', bins), since_addr)) AS definition FROM host_indexes() WHERE source = ',
            fleet_quoted(source), ' AND index = ', fleet_quoted(index), ') AS defined'))),
        merged AS (SELECT lower, upper, sum(count) AS count, any_value(field) AS field FROM found GROUP BY lower, upper),
        ranked AS (SELECT *, sum(count) OVER (ORDER BY lower NULLS FIRST) AS reached, greatest(1, ceil(fleet_decimal(q) * (sum(count) OVER ())::DECIMAL(20, 0))) AS rank FROM merged)
    SELECT CASE
        WHEN (SELECT count(DISTINCT definition) FROM found) > 1 THEN error(concat('the hosts define the index ', index, ' of ', source,
            ' in different ways: ', (SELECT string_agg(hosts, ' unlike ' ORDER BY hosts)
                FROM (SELECT string_agg(DISTINCT host, ', ' ORDER BY host) AS hosts FROM found GROUP BY definition)),
            '; compare them with FROM fleet_ask(''FROM host_indexes()'')'))
        ELSE {'lower': lower, 'upper': upper, 'rank': (rank - reached + count)::BIGINT, 'field': field, 't_from': t_from::TIMESTAMPTZ,
            't_to': t_to::TIMESTAMPTZ}
    END
    FROM ranked WHERE reached >= rank ORDER BY reached LIMIT 1
);

-- The second round: the values of that bin, of which the rank picks one. It equals quantile_disc over the records of all hosts.
CREATE OR REPLACE TEMP MACRO fleet_quantile(source, index, bin) AS (
    SELECT value
    FROM (
        SELECT value, sum(n) OVER (ORDER BY value) AS reached
        FROM fleet_ask(concat('WITH found AS (SELECT "', replace(bin['field'], '"', '""'), '" AS value FROM host_scan(', fleet_quoted(source),
            ', index := ', fleet_quoted(index), ', v_min := ', coalesce(bin['lower']::VARCHAR, 'NULL'), ', v_max := ',
            coalesce(bin['upper']::VARCHAR, 'NULL'), ', t_from := ', fleet_instant(bin['t_from']), ', t_to := ', fleet_instant(bin['t_to']),
            ', at := {at})) SELECT value, count(*) AS n FROM found WHERE ', coalesce('value >= ' || bin['lower']::VARCHAR, 'true'), ' AND ',
            coalesce('value < ' || bin['upper']::VARCHAR, 'true'), ' GROUP BY value'))
    )
    WHERE reached >= bin['rank'] ORDER BY reached LIMIT 1
);

-- The n records with the greatest values of an index on all hosts, which its column value has in the answer too.
CREATE OR REPLACE TEMP MACRO fleet_top(source, index, field, n) AS TABLE
    FROM fleet_ask(concat('FROM host_top(', fleet_quoted(source), ', ', fleet_quoted(index), ', ', n::BIGINT, ', at := {at})')) AS found
    ORDER BY COLUMNS(lambda name: name = field) DESC, ts_ns LIMIT n;

-- The latest n records of a source on all hosts, the newest first.
CREATE OR REPLACE TEMP MACRO fleet_tail(source, n) AS TABLE
    FROM fleet_ask(concat('FROM host_tail(', fleet_quoted(source), ', ', n::BIGINT, ')')) ORDER BY ts_ns DESC LIMIT n;

-- The records of a source on all hosts within width of some times, which another source gave: with the time as hit, and the time since.
CREATE OR REPLACE TEMP MACRO fleet_near(source, hits, width) AS TABLE
    SELECT near.hit, found.ts - near.hit AS since_hit, found.*
    FROM (SELECT DISTINCT unnest(hits::TIMESTAMPTZ[]) AS hit) AS near
    JOIN fleet_ask(concat('FROM host_scan(', fleet_quoted(source), ', around := ', fleet_quoted(hits::TIMESTAMPTZ[]), '::TIMESTAMPTZ[], ',
            'width := ', fleet_quoted(width::INTERVAL), ', at := {at})')) AS found
        ON found.ts >= near.hit - width::INTERVAL AND found.ts < near.hit + width::INTERVAL;
