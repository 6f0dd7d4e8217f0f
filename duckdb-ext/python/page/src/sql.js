// Writes the SQL of every picture. Each query reads only its window, by named parameters, in buckets, and from summaries if they suffice.

import { joined } from "./grammar.js";

const POINTS = 300;
const BANDS = 40;
const GROUPS = 10;
export const ROWS = 1000;

const VALUES_OF = 5000;
const VALUES_MOST = 50;

const name = (column) => `"${column.replaceAll('"', '""')}"`;
const text = (value) => `'${String(value).replaceAll("'", "''")}'`;

/** Writes a time in microseconds since 1970 as a constant. */
export function instant(us) {
  const whole = Math.floor(us / 1e6);
  const date = new Date(whole * 1000).toISOString().slice(0, 19).replace("T", " ");
  const fraction = String(Math.round(us - whole * 1e6)).padStart(6, "0").replace(/0+$/, "");
  return `'${date}${fraction && `.${fraction}`}+00'`;
}

const window_ = ({ from, to }) => `t_from := ${instant(from)}, t_to := ${instant(to)}`;

// While records arrive, the newest bucket is incomplete, and a picture would end with a drop.
const points = (live) => `points := ${POINTS}${live ? ", partial := false" : ""}`;

/** A filter as a parameter; empty text is none. */
const where = (filter) => (filter ? `,\n    filter := ${text(filter)}` : "");

export const directory = {
  sources: (dir) => `SELECT name, CASE WHEN name LIKE 'metrics/%' THEN '' ELSE fields END AS fields, records, first_ts, last_ts, state FROM loom_sources(${text(dir)})`,
  indexes: (dir) => `SELECT source, index, value, filter FROM loom_indexes(${text(dir)}) WHERE state = 'open'`,
  status: (dir) => `SELECT key, value, epoch_us(now()) AS now FROM loom_status(${text(dir)})`,
};

/** The columns of a source, without a record. */
export const columns = (dir, source) => `SELECT * FROM loom_scan(${text(dir)}, ${text(source)}, t_to := '1970-01-01 00:00:00+00') LIMIT 0`;

/** Fails if the filter is wrong. */
export const check = (dir, source, filter) => `SELECT 1 FROM loom_scan(${text(dir)}, ${text(source)}, t_to := '1970-01-01 00:00:00+00'${where(filter)}) LIMIT 0`;

/** The most frequent values of a field in the newest records. */
export const values = (dir, source, field) =>
  `SELECT ${name(field)} AS value\nFROM loom_tail(${text(dir)}, ${text(source)}, ${VALUES_OF})\nWHERE ${name(field)} IS NOT NULL\nGROUP BY ALL\nORDER BY count(*) DESC, 1 LIMIT ${VALUES_MOST}`;

/** The rates of sources; `filters` has the filter of some. */
export const rate = (dir, sources, span, live, filters = {}) =>
  sources
    .map(
      (source) =>
        `SELECT ${text(source)} AS source, bucket, count, per_second\n` +
        `FROM loom_rate(${text(dir)}, ${text(source)}, ${window_(span)},\n    ${points(live)}${where(filters[source])})`,
    )
    .join("\nUNION ALL\n");

export const quantiles = (dir, source, index, span, live, filter) =>
  `SELECT bucket, p50, p99, p99_9, max\n` +
  `FROM loom_aggregate(${text(dir)}, ${text(source)}, ${text(index)}, ${window_(span)},\n` +
  `    ${points(live)}, quantiles := [0.5, 0.99, 0.999], approx := true${where(filter)})`;

export const heat = (dir, source, index, span, live, filter) =>
  `SELECT t1, t2, lower, upper, count\n` +
  `FROM loom_heat(${text(dir)}, ${text(source)}, ${text(index)}, ${window_(span)},\n` +
  `    ${points(live)}, bands := ${BANDS}${where(filter)})`;

/**
 * The records of a window in groups by a field, the ten largest and the rest: their number in buckets of `width` microseconds, and the p99 of
 * `value`. `index` limits them to those of an index. One scan gives all groups of a field with few values; the groups of another field may not fit into memory.
 */
export const groups = (dir, source, span, field, { width, index, value, filter }) => {
  const scanned = `loom_scan(${text(dir)}, ${text(source)}, ${window_(span)}${index === null ? "" : `, index := ${text(index)}`}${where(filter)})`;
  const [key, bucket] = [name(field.name), `ts_ns // ${width * 1000} * ${width} AS bucket`];
  const p99 = (bins) => `${value === null ? "NULL" : `loom_bins_quantile(${bins}, 0.99)`} AS p99`;
  const bins = value === null ? "" : `loom_bins(record.${name(value)})`;
  const largest = (key, from, count) =>
    `largest AS MATERIALIZED (\n    SELECT ${key} AS value, true AS found\n    FROM ${from}\n    GROUP BY ALL ORDER BY ${count} DESC, 1 LIMIT ${GROUPS}\n)`;
  const grouped = (from, key) => `FROM ${from} AS record\nLEFT JOIN largest ON record.${key} IS NOT DISTINCT FROM largest.value\nGROUP BY ALL`;
  const found = "largest.value::VARCHAR AS value, largest.found IS NULL AS rest";
  if (!field.isFew) return `WITH ${largest(key, scanned, "count(*)")}\nSELECT ${bucket}, ${found}, count(*) AS count,\n    ${p99(bins)}\n${grouped(scanned, key)}`;
  return (
    `WITH cells AS MATERIALIZED (\n    SELECT ${bucket}, ${key} AS value, count(*) AS records${bins && `, ${bins} AS bins`}\n    FROM ${scanned} AS record\n    GROUP BY ALL\n), ` +
    `${largest("value", "cells", "sum(records)")}\nSELECT bucket, ${found}, sum(records)::BIGINT AS count,\n    ${p99("loom_bins_merge(bins)")}\n${grouped("cells", "value")}`
  );
};

export const losses = (dir, span) =>
  `SELECT from_ts, to_ts, source, stage, reason, records\nFROM loom_losses(${text(dir)})\n` +
  `WHERE to_ts >= ${instant(span.from)} AND from_ts < ${instant(span.to)}`;

const ALERTS = 200;

/** The newest alerts of a window, in a directory whose daemon has had a rule. */
export const alerts = (dir, span) =>
  `SELECT ts, rule, state, value, threshold, detail\n` +
  `FROM loom_scan(${text(dir)}, 'loom_alerts', ${window_(span)})\nORDER BY ts DESC LIMIT ${ALERTS}`;

export const pins = (dir, span) =>
  `SELECT rule, kept_by, from_ts, to_ts, records, path, missing\nFROM loom_pins(${text(dir)})\n` +
  `WHERE to_ts >= ${instant(span.from)} AND from_ts < ${instant(span.to)}\nORDER BY to_ts DESC LIMIT ${ALERTS}`;

const scan = (dir, source, selection, filter) => {
  const chosen = joined([filter, selection.where].filter(Boolean));
  const bound = (name, value) => (value === null ? "" : `, ${name} := ${value}`);
  const values = selection.index === undefined ? "" : `,\n    index := ${text(selection.index)}${bound("v_min", selection.vMin)}${bound("v_max", selection.vMax)}`;
  return `FROM loom_scan(${text(dir)}, ${text(source)}, ${window_(selection)}${values}${where(chosen)})`;
};

export const count = (dir, source, selection, filter) => `SELECT count(*) AS records\n${scan(dir, source, selection, filter)}`;

/** The first records of a selection by a column: { column, down }. Equal values are in the order of arrival. */
export const rows = (dir, source, selection, filter, { column, down }) =>
  `SELECT ${source.startsWith("metrics/") ? "ts, ts_ns, addr" : "* EXCLUDE (source, dir)"}\n${scan(dir, source, selection, filter)}\n` +
  `ORDER BY ${name(column)}${down ? " DESC" : ""} NULLS LAST, addr LIMIT ${ROWS}`;

export const around = (dir, sources, { from, to }, filters = {}) =>
  sources.map((source) => `SELECT ${text(source)} AS source, count(*) AS records\n${scan(dir, source, { from, to }, filters[source])}`).join("\nUNION ALL\n");

/** What separates a selection from other records: from the others of its time by bounds of an index, or from those of as long a time before. */
export const why = (dir, source, index, { from, to, vMin, vMax, where: chosen }, against, filter) => {
  const bound = (value) => (index === null ? "NULL" : (value ?? "NULL"));
  return (
    `FROM loom_why(${text(dir)}, ${text(source)}, ${index === null ? "NULL" : text(index)}, ${instant(from)}, ${instant(to)}, ${bound(vMin)}, ${bound(vMax)},\n` +
    `    against := ${text(against)}${where(joined([filter, chosen].filter(Boolean)))})`
  );
};

const STACKS = 5000;

/** The numbers of samples of a profile in a window. */
export const samples = (dir, span, filter) =>
  `SELECT count(*) FILTER (off_ns IS NULL) AS on_cpu, count(off_ns) AS off_cpu\nFROM loom_scan(${text(dir)}, 'profile', ${window_(span)}${where(filter)})`;

/** The folded stacks of the samples in a window, the largest if they are many; `total` and `stacks` are of all. */
export const flame = (dir, span, filter, offCpu) =>
  `SELECT stack, count, (sum(count) OVER ())::BIGINT AS total, count(*) OVER () AS stacks\n` +
  `FROM loom_flame(${text(dir)}, ${offCpu ? "off_cpu := true, " : ""}${window_(span)}${where(filter)})\nORDER BY count DESC, stack LIMIT ${STACKS}`;

const NEAR_ROWS = 2000;
const TRACE_US = 60e6;
const TRACE_ROWS = 1000;

/** From a time in nanoseconds, `before` and `after` microseconds. */
const span_ = (ns, before, after) => {
  const us = Number(BigInt(ns) / 1000n);
  return window_({ from: us - before, to: us + after + 1 });
};

const sinceOf = (ns) => `ts_ns - ${ns} AS since_ns, count(*) OVER () AS of, * EXCLUDE (source, dir)`;

/** One record, by its time in nanoseconds and its address. */
export const record = (dir, source, ns, addr) => `SELECT 0 AS since_ns, * EXCLUDE (source, dir)\nFROM loom_scan(${text(dir)}, ${text(source)}, ${span_(ns, 0, 0)})\nWHERE addr = ${text(addr)}`;

/** The records of a source near a time in nanoseconds, the nearest if they are many. */
export const near = (dir, source, ns, width) =>
  `SELECT ${sinceOf(ns)}\nFROM loom_scan(${text(dir)}, ${text(source)}, ${span_(ns, width, width)})\nORDER BY abs(ts_ns - ${ns}), ts_ns LIMIT ${NEAR_ROWS}`;

/** The spans of the trace of a record at a time in nanoseconds. */
export const trace = (dir, id, ns) =>
  `SELECT ts_ns - ${ns} AS since_ns, * EXCLUDE (source, addr, dir)\n` +
  `FROM loom_scan(${text(dir)}, 'spans', ${span_(ns, TRACE_US, TRACE_US)}${where(`trace_id = ${text(id)}`)})\nORDER BY ts_ns LIMIT ${TRACE_ROWS}`;

/** The records of a source from `first` to `end` nanoseconds after a time, of some threads if it is not for all. */
export const under = (dir, source, ns, first, end, threads) =>
  `SELECT ${sinceOf(ns)}\nFROM loom_scan(${text(dir)}, ${text(source)}, ${span_(ns, Math.ceil(-first / 1000), Math.ceil(end / 1000))}` +
  `${where(threads.length ? `tid IN (${threads.join(", ")})` : "")})\nORDER BY ts_ns LIMIT ${NEAR_ROWS}`;

/** The metrics of a source of series. */
export const metrics = (dir, source) =>
  `SELECT value AS metric, count(*) AS series\nFROM loom_labels(${text(dir)}, NULL)\nWHERE source = ${text(source)} AND label = '__name__'\nGROUP BY metric ORDER BY metric`;

/** The labels of a source's series, and how many values each has. */
export const seriesLabels = (dir, source) =>
  `SELECT label, count(DISTINCT value) AS values, any_value(value) AS value\nFROM loom_labels(${text(dir)}, NULL)\n` +
  `WHERE source = ${text(source)} AND label <> '__name__'\nGROUP BY label ORDER BY label`;

const pattern = (value) => value.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");
const labelled = (labels) => `labels := MAP {${Object.entries(labels).map(([label, value]) => `${text(label)}: ${text(pattern(value))}`).join(", ")}}`;
const splitOf = (split) => (split === null ? "NULL" : `labels[${text(split)}]`);
const us_ = (us) => `to_microseconds(${Math.round(us)})`;

/** The mean of a metric in buckets, for all of its series or by a label. */
export const gauge = (dir, metric, labels, split, span, width) =>
  `SELECT epoch_us(bucket) AS us, ${splitOf(split)} AS split, avg AS value\n` +
  `FROM loom_series_aggregate(${text(dir)}, ${text(metric)}, by := [${split === null ? "" : text(split)}]::VARCHAR[],\n    ${labelled(labels)}, bucket := ${us_(width)}, ${window_(span)})\nORDER BY us`;

/** The growth per second of a counter within `over`, the sum of all of its series or of those with a label's value. */
export const counter = (dir, metric, labels, split, span, width, over) =>
  `SELECT epoch_us(ts) AS us, ${splitOf(split)} AS split, sum(value) AS value\n` +
  `FROM loom_counter_rate(${text(dir)}, ${text(metric)}, ${us_(over)},\n    ${labelled(labels)}, every := ${us_(width)}, ${window_(span)})\nGROUP BY ALL ORDER BY us`;
