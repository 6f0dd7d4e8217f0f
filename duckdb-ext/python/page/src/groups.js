// Records of a source in groups by a field: the ten largest and the rest, as rates or quantiles over time, and as bands of a picture.

import { fieldName, joined, wordsIn } from "./grammar.js";
import { hasValue, literalOf } from "./fields.js";
import { number } from "./api.js";
import { colour, MARGIN } from "./frame.js";
import { palette } from "./heat.js";
import { seriesColour } from "./lines.js";

const POINTS = 150;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 43_200, 86_400];
/** A bucket that the window covers less than this tells no rate. */
const COVERED_LEAST = 0.3;

/** The narrowest round width, in microseconds, that gives at most `POINTS` buckets of a window. */
export function widthOf({ from, to }) {
  const least = (to - from) / POINTS;
  const seconds = STEPS.find((step) => step * 1e6 >= least) ?? Math.ceil(least / 86_400e6) * 86_400;
  if (least >= 1e6) return seconds * 1e6;
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return power * [1, 2, 5, 10].find((step) => step * power >= least);
}

/**
 * Reads rows [{ bucket, value, rest, count, p99 }] of a field's groups in a window. Returns { field, width, groups, at(group, us) }, the largest group
 * first and the rest last: { value, rest, name, colour, count, rates: [[bucket, rate]], quantiles: [[bucket, p99]] }. Groups
 * of another window, `like`, come first here too, with the same colours.
 */
export function groupsOf(rows, field, span, width, like = []) {
  const held = Map.groupBy(rows, ({ value, rest }) => JSON.stringify([value, rest]));
  const starts = [];
  for (let bucket = Math.floor(span.from / width) * width; bucket < span.to; bucket += width) {
    const covered = Math.min(bucket + width, span.to) - Math.max(bucket, span.from);
    if (covered >= COVERED_LEAST * width) starts.push({ bucket, seconds: covered / 1e6 });
  }
  const groups = [...held.values()].map((own) => {
    const [{ value, rest }] = own;
    const cells = new Map(own.map((row) => [row.bucket, row]));
    return {
      value,
      rest,
      name: rest ? "all others" : value === null ? "NULL" : String(value),
      count: own.reduce((sum, { count }) => sum + Number(count), 0),
      cells,
      rates: starts.map(({ bucket, seconds }) => [bucket, Number(cells.get(bucket)?.count ?? 0) / seconds]),
      quantiles: starts.map(({ bucket }) => [bucket, cells.get(bucket)?.p99 == null ? null : number(cells.get(bucket).p99)]),
    };
  });
  const orders = new Map(like.filter(({ rest }) => !rest).map(({ name }, order) => [name, order]));
  const orderOf = ({ name }) => orders.get(name) ?? orders.size;
  groups.sort((a, b) => a.rest - b.rest || orderOf(a) - orderOf(b) || b.count - a.count || (a.name < b.name ? -1 : 1));
  for (const group of groups) {
    if (!group.rest && !orders.has(group.name)) orders.set(group.name, orders.size);
    group.colour = group.rest ? colour("muted") : groupColour(orderOf(group));
  }
  const bucketOf = (us) => Math.floor(us / width) * width;
  return { field, width, groups, bucketOf, find: (points, us) => points.find(([bucket]) => bucket === bucketOf(us))?.[1] };
}

/** Eight colours of series, and then the colours of the heat map. */
const groupColour = (order) => (order < 8 ? seriesColour(order) : colour(`heat-${order === 8 ? 2 : 4}`));

/** The condition that holds for some groups of a field; null if it holds for all. */
export function conditionOf({ field, groups }, chosen) {
  const left = groups.filter((group) => !chosen.includes(group));
  if (left.length === 0) return null;
  const any = (some) => {
    const values = some.filter(({ value }) => value !== null).map(({ value }) => literalOf(field, value));
    const parts = [values.length && `${fieldName(field.name)} IN (${values.join(", ")})`, some.some(({ value }) => value === null) && hasValue(field, null)];
    return parts.filter(Boolean).join(" OR ");
  };
  if (!chosen.some(({ rest }) => rest)) return any(chosen);
  const hasNull = left.some(({ value }) => value === null);
  return hasNull ? `NOT (${any(left)})` : `${fieldName(field.name)} IS NULL OR NOT (${any(left)})`;
}

/** The groups for which a condition of `conditionOf` holds; the address may have it, and a filter may have changed the groups since. */
export function chosenOf({ field, groups }, where) {
  const [isNull, words] = [hasValue(field, null), wordsIn(where)];
  const leavesOut = where.startsWith("NOT (") || where.startsWith(`${isNull} OR NOT (`);
  const isChosen = ({ value, rest }) => (rest ? leavesOut : value === null ? where.startsWith(isNull) || (!leavesOut && where.endsWith(isNull)) : words.has(literalOf(field, value)) !== leavesOut);
  return groups.filter(isChosen);
}

/** The condition of one group, for the filter. */
export const groupCondition = (grouped, group) => (group.rest ? conditionOf(grouped, [group]) : hasValue(grouped.field, group.value));

/** Joins filters; empty ones do not count. */
export const both = (...filters) => joined(filters.filter(Boolean));

/** Draws a band for each group: the darker, the more records, with the same shades for the groups `also`. */
export function drawBands(frame, context, { groups, width }, also, losses) {
  const height = (frame.bottom - MARGIN.top) / Math.max(groups.length, 1);
  const peak = [...groups, ...also].reduce((most, { cells }) => [...cells.values()].reduce((found, { count }) => Math.max(found, Number(count)), most), 1);
  const shades = palette();
  const shade = (count) => shades[peak === 1 ? shades.length - 1 : Math.round((Math.log(count) / Math.log(peak)) * (shades.length - 1))];
  frame.values = false;
  frame.bands = groups.map((group, order) => ({ group, top: MARGIN.top + order * height, bottom: MARGIN.top + (order + 1) * height }));
  const middle = new Map(frame.bands.map(({ group, top, bottom }) => [group, (top + bottom) / 2]));
  frame.y = (group) => middle.get(group);
  frame.grid(context, groups, ({ name }) => name);
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, frame.right - MARGIN.left, frame.bottom - MARGIN.top);
  context.clip();
  for (const { group, top, bottom } of frame.bands) {
    for (const { bucket, count } of group.cells.values()) {
      const [x1, x2] = [Math.round(frame.x(bucket)), Math.round(frame.x(bucket + width))];
      context.fillStyle = shade(Number(count));
      context.fillRect(x1, Math.round(top) + 1, Math.max(x2 - x1, 1), Math.max(Math.round(bottom) - Math.round(top) - 2, 1));
    }
  }
  context.restore();
  frame.losses(context, losses);
  frame.peak = peak;
}
