// Writes the SQL of every picture. Each query reads only its window, by named parameters, in buckets, and from summaries if they suffice.

const POINTS = 300;
const BANDS = 40;
export const ROWS = 1000;

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

export const directory = {
  sources: (dir) => `SELECT name, records, first_ts, last_ts, state FROM loom_sources(${text(dir)})`,
  indexes: (dir) => `SELECT source, index, value, filter FROM loom_indexes(${text(dir)}) WHERE state = 'open'`,
  status: (dir) => `SELECT key, value, epoch_us(now()) AS now FROM loom_status(${text(dir)})`,
};

export const rate = (dir, sources, span, live) =>
  sources
    .map(
      (source) =>
        `SELECT ${text(source)} AS source, bucket, count, per_second\n` +
        `FROM loom_rate(${text(dir)}, ${text(source)}, ${window_(span)},\n    ${points(live)})`,
    )
    .join("\nUNION ALL\n");

export const quantiles = (dir, source, index, span, live) =>
  `SELECT bucket, p50, p99, p99_9, max\n` +
  `FROM loom_aggregate(${text(dir)}, ${text(source)}, ${text(index)}, ${window_(span)},\n` +
  `    ${points(live)}, quantiles := [0.5, 0.99, 0.999], approx := true)`;

export const heat = (dir, source, index, span, live) =>
  `SELECT t1, t2, lower, upper, count\n` +
  `FROM loom_heat(${text(dir)}, ${text(source)}, ${text(index)}, ${window_(span)},\n` +
  `    ${points(live)}, bands := ${BANDS})`;

export const losses = (dir, span) =>
  `SELECT from_ts, to_ts, source, stage, reason, records\nFROM loom_losses(${text(dir)})\n` +
  `WHERE to_ts >= ${instant(span.from)} AND from_ts < ${instant(span.to)}`;

const ALERTS = 200;

/** The newest alerts of a window, in a directory whose daemon has had a rule. */
export const alerts = (dir, span) =>
  `SELECT ts, rule, state, value, threshold, detail\n` +
  `FROM loom_scan(${text(dir)}, 'loom_alerts', ${window_(span)})\nORDER BY ts DESC LIMIT ${ALERTS}`;

export const pins = (dir, span) =>
  `SELECT rule, from_ts, to_ts, records, path, missing\nFROM loom_pins(${text(dir)})\n` +
  `WHERE to_ts >= ${instant(span.from)} AND from_ts < ${instant(span.to)}\nORDER BY to_ts DESC LIMIT ${ALERTS}`;

const scan = (dir, source, selection) => {
  const bound = (name, value) => (value === null ? "" : `, ${name} := ${value}`);
  const values = selection.index === undefined ? "" : `,\n    index := ${text(selection.index)}${bound("v_min", selection.vMin)}${bound("v_max", selection.vMax)}`;
  return `FROM loom_scan(${text(dir)}, ${text(source)}, ${window_(selection)}${values})`;
};

export const count = (dir, source, selection) => `SELECT count(*) AS records\n${scan(dir, source, selection)}`;

export const rows = (dir, source, selection) => `SELECT * EXCLUDE (source, addr, dir)\n${scan(dir, source, selection)}\nLIMIT ${ROWS}`;

export const around = (dir, sources, { from, to }) =>
  sources.map((source) => `SELECT ${text(source)} AS source, count(*) AS records\n${scan(dir, source, { from, to })}`).join("\nUNION ALL\n");
