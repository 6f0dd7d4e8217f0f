-- Macros for the drill-down. In DuckDB 2.0 the extension has them once it is loaded; in earlier versions read the file:
--
--   .read sql/macros.sql
--
-- They are temporary, so nothing is written into a database. The first argument is the directory (NULL: the setting loom_dir, or else the
-- environment variable LOOM_DIR). Named arguments limit the time: t_from and t_to (half open), last, and at, a position. Arguments
-- are constants, getvariable() or prepared parameters, as for the functions that the macros call; answers are equally exact.

-- The position up to which records are published now: SET VARIABLE position = loom_position('demo.loom').
CREATE OR REPLACE TEMP MACRO loom_position(dir) AS (
    SELECT now.position FROM loom_snapshot(dir) AS now
);

-- The least value that at least the fraction q of an index's values does not exceed: loom_quantile(dir, 'request', 'latency', 0.9999).
-- With approx := true its error is at most the width of a bin, and it is much faster over long windows.
CREATE OR REPLACE TEMP MACRO loom_quantile(dir, source, index, q, t_from := NULL, t_to := NULL, last := NULL, approx := NULL, filter := NULL, at := NULL) AS (
    SELECT COLUMNS('^p[0-9]')
    FROM loom_aggregate(dir, source::VARCHAR, index::VARCHAR, quantiles := [q::DOUBLE], t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, approx := approx::BOOLEAN, filter := filter::VARCHAR, at := "at")
);

-- The records whose value of an index is v_min or greater.
CREATE OR REPLACE TEMP MACRO loom_above(dir, source, index, v_min, t_from := NULL, t_to := NULL, last := NULL, filter := NULL, at := NULL) AS TABLE
    FROM loom_scan(dir, source::VARCHAR, index := index::VARCHAR, v_min := v_min, t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, at := "at");

-- The times of those records, as a list: SET VARIABLE hits = loom_hits(dir, 'request', 'latency', getvariable('p')).
CREATE OR REPLACE TEMP MACRO loom_hits(dir, source, index, v_min, t_from := NULL, t_to := NULL, last := NULL, filter := NULL, at := NULL) AS (
    SELECT coalesce(list(found.ts ORDER BY found.ts_ns), [])
    FROM loom_scan(dir, source::VARCHAR, index := index::VARCHAR, v_min := v_min, t_from := t_from::TIMESTAMPTZ,
        t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, at := "at") AS found
);

-- The records of another source within width of each hit, with the hit and the time since it. A record near two hits appears twice.
CREATE OR REPLACE TEMP MACRO loom_near(dir, source, hits, width, filter := NULL, at := NULL) AS TABLE
    SELECT around.hit, found.ts - around.hit AS since_hit, found.*
    FROM (SELECT DISTINCT unnest(hits::TIMESTAMPTZ[]) AS hit) AS around
    JOIN loom_scan(dir, source::VARCHAR, around := coalesce(hits::TIMESTAMPTZ[], []), width := width::INTERVAL, filter := filter::VARCHAR, at := "at") AS found
        ON found.ts >= around.hit - width::INTERVAL AND found.ts < around.hit + width::INTERVAL;

-- The records of a window, each with the latest record of another source up to its time, which is at most
-- lookback (a second) before the window: a STRUCT named latest, NULL if there is none. A longer lookback reads more of the
-- other source. Without a window both sources are read completely.
CREATE OR REPLACE TEMP MACRO loom_asof(dir, source, other, t_from := NULL, t_to := NULL, last := NULL, lookback := NULL, filter := NULL, at := NULL) AS TABLE
    SELECT found.*, CASE WHEN latest.ts_ns IS NOT NULL THEN latest END AS latest
    FROM loom_scan(dir, source::VARCHAR, t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, at := "at") AS found
    ASOF LEFT JOIN loom_scan(dir, other::VARCHAR, t_to := t_to::TIMESTAMPTZ, at := "at",
        t_from := t_from::TIMESTAMPTZ - greatest(coalesce(lookback::INTERVAL, INTERVAL 1 SECOND), INTERVAL 0 SECOND),
        last := last::INTERVAL + greatest(coalesce(lookback::INTERVAL, INTERVAL 1 SECOND), INTERVAL 0 SECOND)) AS latest
        ON found.ts_ns >= latest.ts_ns
    WHERE CASE WHEN lookback::INTERVAL < INTERVAL 0 SECOND THEN error('loom_asof: lookback must not be negative: it is ' || lookback) ELSE true END;

-- The usual quantiles of an index over time; approx as for loom_quantile.
CREATE OR REPLACE TEMP MACRO loom_percentiles(dir, source, index, bucket, t_from := NULL, t_to := NULL, last := NULL, approx := NULL, filter := NULL, at := NULL) AS TABLE
    SELECT found.bucket, found.count, found.p50, found.p90, found.p99, found.p99_9, found.max
    FROM loom_aggregate(dir, source::VARCHAR, index::VARCHAR, bucket := bucket::INTERVAL, quantiles := [0.5, 0.9, 0.99, 0.999],
        t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, approx := approx::BOOLEAN, filter := filter::VARCHAR, at := "at") AS found
    ORDER BY found.bucket;

-- A heat map as text: one row for each bucket, one character for each power of two from the least value on. A darker character has more
-- values, on a logarithmic scale that all buckets share; a dot has none. The first character begins at least; values below 1 count as 1.
CREATE OR REPLACE TEMP MACRO loom_heatmap(dir, source, index, bucket, t_from := NULL, t_to := NULL, last := NULL, filter := NULL, at := NULL) AS TABLE
    WITH cells AS MATERIALIZED (
        SELECT found.t1 AS span, floor(log2(greatest(found.lower, 1)))::INTEGER AS band, sum(found.count)::BIGINT AS n
        FROM loom_heat(dir, source::VARCHAR, index::VARCHAR, bucket := bucket::INTERVAL, bands := 65_536, t_from := t_from::TIMESTAMPTZ,
            t_to := t_to::TIMESTAMPTZ, last := last::INTERVAL, filter := filter::VARCHAR, at := "at") AS found
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

-- The growth of counters within over, at times that are every apart (over by default): increase() of Prometheus, with its rules for resets and
-- for the ends of the range. The times go from t_from to t_to; without t_from they are multiples of every. The labels omit the name of the
-- metric, which is required.
CREATE OR REPLACE TEMP MACRO loom_increase(dir, metric, over, labels := NULL, every := NULL, t_from := NULL, t_to := NULL, last := NULL, at := NULL, complete := NULL) AS TABLE
    WITH samples AS MATERIALIZED (
        SELECT found.series, found.ts_ns, found.value,
            lag(found.value) OVER (PARTITION BY found.series ORDER BY found.ts_ns) AS before,
            lag(found.ts_ns) OVER (PARTITION BY found.series ORDER BY found.ts_ns) AS before_ns
        FROM loom_samples(dir, metric::VARCHAR, label_names := map_keys(labels::MAP(VARCHAR, VARCHAR)),
            label_patterns := map_values(labels::MAP(VARCHAR, VARCHAR)), t_from := t_from::TIMESTAMPTZ - over::INTERVAL,
            t_to := t_to::TIMESTAMPTZ + INTERVAL 1 MICROSECOND, last := last::INTERVAL + over::INTERVAL, at := "at", complete := complete::BOOLEAN) AS found
    ), lengths AS (
        SELECT (epoch(over::INTERVAL) * 1e9)::BIGINT AS over_ns,
            CASE WHEN least(over::INTERVAL, coalesce(every::INTERVAL, over::INTERVAL)) <= INTERVAL 0 SECOND
                THEN error('over and every must be positive: they are ' || over || ' and ' || coalesce(every::INTERVAL, over::INTERVAL))
                ELSE (epoch(coalesce(every::INTERVAL, over::INTERVAL)) * 1e9)::BIGINT END AS every_ns,
            (epoch(last::INTERVAL) * 1e9)::BIGINT AS last_ns,
            epoch_us(t_from::TIMESTAMPTZ) * 1000 AS from_ns, epoch_us(t_to::TIMESTAMPTZ) * 1000 AS to_ns
    ), span AS (
        SELECT over_ns, every_ns, coalesce(to_ns, newest_ns) AS end_ns,
            coalesce(from_ns, (coalesce(coalesce(to_ns, newest_ns) - last_ns, oldest_ns) + every_ns - 1) // every_ns * every_ns) AS first_ns
        FROM lengths, (SELECT min(ts_ns) AS oldest_ns, max(ts_ns) AS newest_ns FROM samples) AS ends
    ), ranges AS (
        SELECT series, ts_ns, value, before, before_ns, over_ns, first_ns + every_ns * unnest(range(
            greatest(0, (ts_ns - first_ns + every_ns - 1) // every_ns),
            1 + least((end_ns - first_ns) // every_ns, (ts_ns + over_ns - first_ns) // every_ns))) AS at_ns
        FROM samples, span
        WHERE ts_ns + over_ns >= first_ns AND end_ns >= first_ns
    ), grown AS (
        SELECT series, at_ns, count(*) AS n, arg_min(value, ts_ns) AS first_value,
            arg_max(value, ts_ns) - first_value + coalesce(sum(before)
                FILTER (WHERE value < before AND NOT isnan(before) AND before_ns >= at_ns - over_ns), 0) AS growth,
            (min(ts_ns) - (at_ns - any_value(over_ns))) / 1e9 AS to_start, (at_ns - max(ts_ns)) / 1e9 AS to_end,
            (max(ts_ns) - min(ts_ns)) / 1e9 AS sampled, sampled / (n - 1) AS apart
        FROM ranges
        GROUP BY series, at_ns
        HAVING count(*) > 1
    ), ends AS (
        SELECT *, CASE WHEN growth > 0 AND first_value >= 0 AND NOT isnan(growth) AND NOT isnan(first_value)
            THEN least(to_start, sampled * (first_value / growth)) ELSE to_start END AS start_gap
        FROM grown
    )
    SELECT make_timestamptz(ends.at_ns // 1000) AS ts, known.labels, ends.growth * ((ends.sampled
        + CASE WHEN ends.start_gap < ends.apart * 1.1 THEN ends.start_gap ELSE ends.apart / 2 END
        + CASE WHEN ends.to_end < ends.apart * 1.1 THEN ends.to_end ELSE ends.apart / 2 END) / ends.sampled) AS value, known.dir
    FROM ends
    JOIN (
        SELECT named.series, any_value(named.dir) AS dir, map(list(named.label ORDER BY named.label), list(named.value ORDER BY named.label)) AS labels
        FROM loom_labels(dir, metric::VARCHAR, label_names := map_keys(labels::MAP(VARCHAR, VARCHAR)),
            label_patterns := map_values(labels::MAP(VARCHAR, VARCHAR))) AS named
        WHERE named.label <> '__name__'
        GROUP BY named.series
    ) AS known ON known.series = ends.series;

-- The same per second: rate() of Prometheus.
CREATE OR REPLACE TEMP MACRO loom_counter_rate(dir, metric, over, labels := NULL, every := NULL, t_from := NULL, t_to := NULL, last := NULL, at := NULL, complete := NULL) AS TABLE
    SELECT grown.ts, grown.labels, grown.value / epoch(over::INTERVAL) AS value, grown.dir
    FROM loom_increase(dir, metric, over, labels := labels, every := every, t_from := t_from, t_to := t_to, last := last,
        at := "at", complete := complete) AS grown;

-- A profile of record profile as folded stacks, for flame graphs: the name of the thread and its functions, the outermost first, with semicolons
-- between them and _[k] behind those of the kernel, and how many samples have them. off_cpu := true gives the microseconds off the processors
-- instead of samples. source is 'profile' and stacks 'stack' by default; a stack is stored at most a minute before its samples.
CREATE OR REPLACE TEMP MACRO loom_flame(dir, source := NULL, stacks := NULL, off_cpu := NULL, t_from := NULL, t_to := NULL, last := NULL, filter := NULL, at := NULL) AS TABLE
    WITH named AS (
        SELECT known.stack, any_value(concat_ws(chr(59), known.program, replace(known.kernel, chr(59), '_[k]' || chr(59)) || '_[k]')) AS functions
        FROM loom_scan(dir, coalesce(stacks::VARCHAR, 'stack'), t_from := t_from::TIMESTAMPTZ - INTERVAL 61 SECOND,
            t_to := t_to::TIMESTAMPTZ + INTERVAL 1 SECOND, last := last::INTERVAL + INTERVAL 61 SECOND, at := "at") AS known
        GROUP BY known.stack
    ), counted AS (
        SELECT replace(found.comm, chr(59), ':') AS thread, found.stack AS number, count(*) AS samples, sum(found.off_ns) AS off_ns
        FROM loom_scan(dir, coalesce(source::VARCHAR, 'profile'), t_from := t_from::TIMESTAMPTZ, t_to := t_to::TIMESTAMPTZ,
            last := last::INTERVAL, filter := filter::VARCHAR, at := "at") AS found
        WHERE (found.off_ns IS NOT NULL) = coalesce(off_cpu::BOOLEAN, false)
        GROUP BY ALL
    )
    SELECT concat_ws(chr(59), counted.thread, coalesce(named.functions, '[removed]')) AS stack,
        coalesce(sum(counted.off_ns) // 1000, sum(counted.samples))::BIGINT AS count
    FROM counted LEFT JOIN named ON named.stack = counted.number
    GROUP BY 1
    ORDER BY 2 DESC;

-- The control groups of a recording by their ids, with their latest paths and, where a path names a container, its id or name: of Docker, Podman,
-- containerd, CRI-O and Kubernetes the id, of systemd's machines and LXC the name. source is 'cgroup' by default.
CREATE OR REPLACE TEMP MACRO loom_cgroups(dir, source := NULL, at := NULL) AS TABLE
    WITH known AS (
        SELECT found.dir, found.id, arg_max(found.path, found.ts_ns) AS path
        FROM loom_scan(dir, coalesce(source::VARCHAR, 'cgroup'), at := "at") AS found
        GROUP BY ALL
    )
    SELECT known.id, known.path, coalesce(
            nullif(regexp_extract(known.path, '.*/(?:(?:docker|cri-containerd|crio|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?(?:/|$)', 1), ''),
            nullif(replace(regexp_extract(known.path, '/machine\.slice/(?:machine-|systemd-nspawn@)([^/]+)\.(?:scope|service)(?:/|$)', 1), '\x2d', '-'), ''),
            nullif(regexp_extract(known.path, '/lxc(?:/|\.payload\.)([^/]+)', 1), '')) AS container,
        known.dir
    FROM known
    ORDER BY known.dir, known.path;

-- The processes of a recording of process, for joining pids to names at a time: a pid is of one process from started until ended, which are NULL if
-- the recording does not have them. A process whose end is missing, such as one before a restart of the machine, ended when the next with its pid began. comm, path, args and cgroup are the latest. source is 'process' by default.
CREATE OR REPLACE TEMP MACRO loom_processes(dir, source := NULL, at := NULL) AS TABLE
    WITH seen AS (
        SELECT found.*, found.event = 'fork' OR lag(found.event) OVER (PARTITION BY found.dir, found.pid ORDER BY found.ts_ns, found.addr) = 'exit' AS begins
        FROM loom_scan(dir, coalesce(source::VARCHAR, 'process'), at := "at") AS found
    ), lives AS (
        SELECT seen.*, count(*) FILTER (seen.begins) OVER (PARTITION BY seen.dir, seen.pid ORDER BY seen.ts_ns, seen.addr ROWS UNBOUNDED PRECEDING) AS life
        FROM seen
    )
    SELECT lives.pid, arg_min(lives.ppid, lives.ts_ns) AS ppid, arg_max(lives.comm, lives.ts_ns) AS comm,
        arg_max(lives.path, lives.ts_ns) FILTER (lives.event = 'exec') AS path, arg_max(lives.args, lives.ts_ns) FILTER (lives.event = 'exec') AS args,
        coalesce(min(lives.ts) FILTER (lives.event = 'fork'), min(lives.ts - to_microseconds(lives.lived_ns::BIGINT // 1000)),
            lag(max(lives.ts)) OVER (PARTITION BY lives.dir, lives.pid ORDER BY lives.life)) AS started,
        coalesce(max(lives.ts) FILTER (lives.event = 'exit'), lead(min(lives.ts)) OVER (PARTITION BY lives.dir, lives.pid ORDER BY lives.life)) AS ended,
        max(lives.exit_code) AS exit_code, max(lives.signal) AS signal,
        arg_max(lives.cgroup, lives.ts_ns) AS cgroup, lives.dir
    FROM lives
    GROUP BY lives.dir, lives.pid, lives.life
    ORDER BY started NULLS FIRST;

-- The names of TCP's flags, as Wireshark writes them: 'SYN, ACK' for 18.
CREATE OR REPLACE TEMP MACRO loom_tcp_flags(flags) AS (
    CASE WHEN flags IS NOT NULL THEN concat_ws(', ',
        CASE WHEN flags & 1 > 0 THEN 'FIN' END, CASE WHEN flags & 2 > 0 THEN 'SYN' END,
        CASE WHEN flags & 4 > 0 THEN 'RST' END, CASE WHEN flags & 8 > 0 THEN 'PSH' END,
        CASE WHEN flags & 16 > 0 THEN 'ACK' END, CASE WHEN flags & 32 > 0 THEN 'URG' END,
        CASE WHEN flags & 64 > 0 THEN 'ECE' END, CASE WHEN flags & 128 > 0 THEN 'CWR' END) END
);

-- The payload of a captured TCP segment or UDP datagram, as far as it was captured; NULL for any other packet. It uses the bytes alone:
-- Ethernet with VLAN tags, Linux cooked of both versions, loopback of BSD, and bare IP. NULL behind the extension headers of IPv6, and in
-- fragments except the first.
CREATE OR REPLACE TEMP MACRO loom_payload(packet) AS (
    WITH frame AS (
        SELECT hex((packet::BLOB)[:64]) AS h
    ), link AS (
        SELECT CASE
            WHEN h[:8] IN ('08000000', '86DD0000') THEN 20
            WHEN h[:2] = '45' THEN 0
            WHEN regexp_matches(h[25:], '^((8100|88A8|9100).{4})*(08004|86DD6)')
                THEN 14 + length(regexp_extract(h[25:], '^((8100|88A8|9100).{4})*')) // 2
            WHEN regexp_matches(h[29:], '^(08004|86DD6)') THEN 16
            WHEN regexp_matches(h, '^((0[2A]|1[8CE])000000|000000(0[2A]|1[8CE]))[46]') THEN 4
            ELSE 0 END AS link_bytes
        FROM frame
    ), net AS (
        SELECT (packet::BLOB)[link_bytes + 1:] AS ip FROM link
    ), header AS (
        SELECT ip, hex(ip[:40]) AS h FROM net
    ), bounds AS (
        SELECT CASE
                WHEN h[1] = '6' THEN h[13:14]
                WHEN h[1] = '4' AND h[13] IN ('0', '2', '4', '6') AND h[14:16] = '000' THEN h[19:20] END AS protocol,
            CASE WHEN h[1] = '6' THEN 40 ELSE ('0x0' || h[2])::INTEGER * 4 END AS header_bytes,
            CASE WHEN h[1] = '6' THEN ('0x0' || h[9:12])::INTEGER ELSE ('0x0' || h[5:8])::INTEGER - header_bytes END AS rest_bytes,
            ip
        FROM header
    ), transport AS (
        SELECT protocol, CASE WHEN rest_bytes > 0 THEN ip[header_bytes + 1:header_bytes + rest_bytes] ELSE ip[header_bytes + 1:] END AS rest
        FROM bounds
    ), segment AS (
        SELECT rest, CASE
            WHEN protocol = '11' THEN 8
            WHEN protocol = '06' AND hex(rest[13:13])[1] >= '5' THEN ('0x0' || hex(rest[13:13])[1])::INTEGER * 4 END AS begin
        FROM transport
    )
    SELECT CASE WHEN octet_length(rest) >= begin THEN rest[begin + 1:] END FROM segment
);

-- Bytes as text, on one line: printable ASCII as it is, and a dot for every other byte.
CREATE OR REPLACE TEMP MACRO loom_text(bytes) AS (
    replace(replace(replace(regexp_replace(bytes::BLOB::VARCHAR, '\\x([01][0-9A-F]|7F|[89A-F][0-9A-F])', '.', 'g'),
        '\x22', '"'), '\x27', ''''), '\x5C', '\')
);

-- The name of the error that a system call returned, such as 'ENOENT' for -2; NULL for a call that succeeded. -512 to -516 are codes of the
-- kernel, for calls that a signal interrupted.
CREATE OR REPLACE TEMP MACRO loom_errno(result) AS (
    CASE WHEN result BETWEEN -4095 AND -1 THEN coalesce([
        'EPERM', 'ENOENT', 'ESRCH', 'EINTR', 'EIO', 'ENXIO', 'E2BIG', 'ENOEXEC', 'EBADF', 'ECHILD', 'EAGAIN',
        'ENOMEM', 'EACCES', 'EFAULT', 'ENOTBLK', 'EBUSY', 'EEXIST', 'EXDEV', 'ENODEV', 'ENOTDIR', 'EISDIR', 'EINVAL',
        'ENFILE', 'EMFILE', 'ENOTTY', 'ETXTBSY', 'EFBIG', 'ENOSPC', 'ESPIPE', 'EROFS', 'EMLINK', 'EPIPE', 'EDOM',
        'ERANGE', 'EDEADLK', 'ENAMETOOLONG', 'ENOLCK', 'ENOSYS', 'ENOTEMPTY', 'ELOOP', NULL, 'ENOMSG', 'EIDRM',
        'ECHRNG', 'EL2NSYNC', 'EL3HLT', 'EL3RST', 'ELNRNG', 'EUNATCH', 'ENOCSI', 'EL2HLT', 'EBADE', 'EBADR', 'EXFULL',
        'ENOANO', 'EBADRQC', 'EBADSLT', NULL, 'EBFONT', 'ENOSTR', 'ENODATA', 'ETIME', 'ENOSR', 'ENONET', 'ENOPKG',
        'EREMOTE', 'ENOLINK', 'EADV', 'ESRMNT', 'ECOMM', 'EPROTO', 'EMULTIHOP', 'EDOTDOT', 'EBADMSG', 'EOVERFLOW',
        'ENOTUNIQ', 'EBADFD', 'EREMCHG', 'ELIBACC', 'ELIBBAD', 'ELIBSCN', 'ELIBMAX', 'ELIBEXEC', 'EILSEQ', 'ERESTART',
        'ESTRPIPE', 'EUSERS', 'ENOTSOCK', 'EDESTADDRREQ', 'EMSGSIZE', 'EPROTOTYPE', 'ENOPROTOOPT', 'EPROTONOSUPPORT',
        'ESOCKTNOSUPPORT', 'EOPNOTSUPP', 'EPFNOSUPPORT', 'EAFNOSUPPORT', 'EADDRINUSE', 'EADDRNOTAVAIL', 'ENETDOWN',
        'ENETUNREACH', 'ENETRESET', 'ECONNABORTED', 'ECONNRESET', 'ENOBUFS', 'EISCONN', 'ENOTCONN', 'ESHUTDOWN',
        'ETOOMANYREFS', 'ETIMEDOUT', 'ECONNREFUSED', 'EHOSTDOWN', 'EHOSTUNREACH', 'EALREADY', 'EINPROGRESS', 'ESTALE',
        'EUCLEAN', 'ENOTNAM', 'ENAVAIL', 'EISNAM', 'EREMOTEIO', 'EDQUOT', 'ENOMEDIUM', 'EMEDIUMTYPE', 'ECANCELED',
        'ENOKEY', 'EKEYEXPIRED', 'EKEYREVOKED', 'EKEYREJECTED', 'EOWNERDEAD', 'ENOTRECOVERABLE', 'ERFKILL',
        'EHWPOISON'
        ][-result],
        ['ERESTARTSYS', 'ERESTARTNOINTR', 'ERESTARTNOHAND', 'ENOIOCTLCMD', 'ERESTART_RESTARTBLOCK']
            [CASE WHEN result < -511 THEN -result - 511 END],
        result::VARCHAR) END
);
