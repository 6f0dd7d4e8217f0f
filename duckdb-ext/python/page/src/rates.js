// The rates of all sources, from the counts of their buckets, on one grid of buckets without holes. It covers the part of the window that has records.

const GRID_MAX = 2000;
/** A bucket at an end of the directory counts for the part that records cover, if it has at least this many, so that the part is known. */
const TELLING = 10;

/**
 * `rows`: [{ source, bucket, count, per_second }]; `held`: from the first record of the directory to the last. While records arrive (`live`),
 * there are only whole buckets. Returns { width, points(name): [[bucket, rate]], at(name, us), mean(name) }, rates in records a second.
 */
export function ratesOf({ rows, span, held, live }) {
  const some = rows.find(({ per_second }) => per_second > 0);
  const width = some ? Math.round((some.count / some.per_second) * 1e6) : (span.to - span.from) / 300;
  const counts = new Map();
  const totals = new Map();
  for (const { source, bucket, count } of rows) {
    if (!counts.has(source)) counts.set(source, new Map());
    counts.get(source).set(bucket, count);
    totals.set(bucket, (totals.get(bucket) ?? 0) + count);
  }
  const grid = some ? gridOf(totals, width, { from: Math.max(span.from, held.from), to: Math.min(span.to, held.to) }, live) : [];
  const seconds = new Map(grid.map(({ bucket, seconds }) => [bucket, seconds]));
  const covered = grid.reduce((sum, { seconds }) => sum + seconds, 0);
  const origin = grid[0]?.bucket ?? 0;
  const rate = (name, bucket) => (counts.get(name)?.get(bucket) ?? 0) / seconds.get(bucket);
  return {
    width,
    points: (name) => grid.map(({ bucket }) => [bucket, rate(name, bucket)]),
    at(name, us) {
      const bucket = origin + Math.floor((us - origin) / width) * width;
      return seconds.has(bucket) ? rate(name, bucket) : undefined;
    },
    mean: (name) => (covered ? [...(counts.get(name)?.values() ?? [])].reduce((sum, count) => sum + count, 0) / covered : 0),
  };
}

function gridOf(totals, width, shared, live) {
  const starts = [...totals.keys()];
  const [least, most] = [starts.reduce((a, b) => Math.min(a, b)), starts.reduce((a, b) => Math.max(a, b))];
  const steps = (us, round) => least + round((us - least) / width) * width;
  const first = Math.min(steps(shared.from, live ? Math.ceil : Math.floor), least);
  const end = Math.max(steps(shared.to, live ? Math.floor : Math.ceil), most + width);
  const length = Math.min(Math.round((end - first) / width), GRID_MAX);
  return Array.from({ length }, (_, at) => {
    const bucket = first + at * width;
    const inside = Math.min(bucket + width, shared.to) - Math.max(bucket, shared.from);
    const cut = !live && inside > 0 && (totals.get(bucket) ?? 0) >= TELLING;
    return { bucket, seconds: (cut ? inside : width) / 1e6 };
  });
}
