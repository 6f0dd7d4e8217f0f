// Draws lines over time: the rates of the sources, and the quantiles of an index.

import { scaleLinear, scaleLog } from "d3-scale";
import { line as path } from "d3-shape";
import { MARGIN, colour } from "./frame.js";

/**
 * Draws `series`: [{ points: [[bucket, value or null]], colour, wide, area }]. A bucket is drawn at its middle. `log` chooses the scale,
 * which fits the series `also` too. It grows at once and shrinks only by half, so it does not flicker while data arrive.
 */
export function drawLines(frame, context, { series, also = [], width, log, label, losses }) {
  const isDrawn = (value) => Number.isFinite(value) && (!log || value > 0);
  const values = [...series, ...also].flatMap(({ points }) => points.map(([, value]) => value)).filter(isDrawn);
  const most = values.length ? values.reduce((a, b) => Math.max(a, b)) : 1;
  const least = values.length ? values.reduce((a, b) => Math.min(a, b)) : 1;
  const held = frame.held;
  if (log) {
    const wanted = [least / 1.15, most * 1.25];
    const keeps = held && held.log && held.domain[0] <= least && held.domain[1] >= most && held.domain[1] / held.domain[0] < 3 * (wanted[1] / wanted[0]);
    frame.held = keeps ? held : { log, domain: wanted };
    frame.y = scaleLog(frame.held.domain, [frame.bottom, MARGIN.top]);
  } else {
    const keeps = held && !held.log && held.domain[1] >= most && held.domain[1] < 2 * most;
    frame.held = keeps ? held : { log, domain: [0, most * 1.15 || 1] };
    frame.y = scaleLinear(frame.held.domain, [frame.bottom, MARGIN.top]);
  }
  const count = Math.max(2, Math.floor((frame.bottom - MARGIN.top) / 34));
  const ticks = log ? logTicks(frame.y.domain(), count) : frame.y.ticks(count);
  frame.grid(context, values.length ? ticks : [], label);
  frame.losses(context, losses);
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, 0, frame.right - MARGIN.left, frame.height);
  context.clip();
  const draw = path()
    .defined(([, value]) => isDrawn(value))
    .x(([bucket]) => frame.x(bucket + width / 2))
    .y(([, value]) => frame.y(value))
    .context(context);
  for (const each of series) {
    context.strokeStyle = each.colour;
    context.lineWidth = each.wide ? 2 : 1.25;
    context.lineJoin = "round";
    context.beginPath();
    draw(each.points);
    context.stroke();
    context.fillStyle = each.colour;
    for (const [bucket, value] of alone(each.points, isDrawn)) {
      context.beginPath();
      context.arc(frame.x(bucket + width / 2), frame.y(value), 2, 0, 7);
      context.fill();
    }
  }
  context.restore();
}

/** Points without a neighbour, which a line would not show. */
const alone = (points, isDrawn) => points.filter(([, value], at) => isDrawn(value) && !isDrawn(points[at - 1]?.[1]) && !isDrawn(points[at + 1]?.[1]));

/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 (or 1.5, 3, 7) if there is room. */
export function logTicks([least, most], count) {
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) {
      for (const step of steps) ticks.push(step * 10 ** power);
    }
    const inside = ticks.filter((tick) => tick >= least && tick <= most);
    if (inside.length >= Math.min(count, 3)) return inside.length <= 2 * count ? inside : inside.filter((_, at) => at % Math.ceil(inside.length / count) === 0);
  }
  return scaleLinear([least, most], [0, 1]).ticks(count);
}

export const seriesColour = (at) => colour(`series-${at % 8}`);
