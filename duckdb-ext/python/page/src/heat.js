// Draws the heat map: cells of time and value, coloured by the logarithm of their count.

import { scaleLinear, scaleLog, scaleSymlog } from "d3-scale";
import { MARGIN, colour } from "./frame.js";
import { logTicks } from "./lines.js";

/** The least height of a cell that reaches to infinity. */
const EDGE = 4;

/**
 * Draws `cells` [{ t1, t2, lower, upper, count }] into a frame, on scales that fit the cells `also` too. The axis is logarithmic, on both sides of zero if there are negative values.
 * Cells that reach to infinity end at the edge of the picture.
 */
export function drawHeat(frame, context, { cells, also, label, losses }) {
  const isKnown = ({ lower, upper }) => !Number.isNaN(lower) && !Number.isNaN(upper);
  const drawn = cells.filter(isKnown);
  const scaled = [...drawn, ...also.filter(isKnown)];
  const isBounded = ({ lower, upper }) => Number.isFinite(lower) && Number.isFinite(upper);
  const bounded = scaled.filter(isBounded);
  const edges = (bounded.length ? bounded : scaled).flatMap(({ lower, upper }) => [lower, upper]).filter(Number.isFinite);
  const [least, most] = edges.length ? [edges.reduce((a, b) => Math.min(a, b)), edges.reduce((a, b) => Math.max(a, b))] : [1, 10];
  const log = least >= 0;
  frame.values = true;
  frame.bands = null;
  if (log) {
    const positive = bounded.reduce((found, { lower, upper }) => Math.min(found, lower > 0 ? lower : upper / 2), Infinity);
    const floor = Number.isFinite(positive) ? positive : 1;
    const held = frame.held?.domain;
    const keeps = frame.held?.log && held[0] <= floor && held[1] >= most && held[1] / held[0] <= 4 * (most / floor);
    frame.held = keeps ? frame.held : { log, domain: [floor, Math.max(most, floor * 2) * (most / floor) ** 0.05] };
    frame.y = scaleLog(frame.held.domain, [frame.bottom, MARGIN.top]).clamp(true);
  } else {
    frame.held = null;
    // Closer to zero than a thousandth of the greatest value, the scale is linear.
    frame.y = scaleSymlog([least, most], [frame.bottom, MARGIN.top]).constant(Math.max(-least, most) / 1000).clamp(true);
  }
  const peak = scaled.reduce((found, { count }) => Math.max(found, count), 1);
  const shades = palette();
  const shade = (count) => shades[peak === 1 ? shades.length - 1 : Math.round((Math.log(count) / Math.log(peak)) * (shades.length - 1))];
  const count = Math.max(2, Math.floor((frame.bottom - MARGIN.top) / 40));
  frame.grid(context, log ? logTicks(frame.y.domain(), count) : bothTicks(frame.y, count), label);
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, frame.right - MARGIN.left, frame.bottom - MARGIN.top);
  context.clip();
  for (const cell of drawn) {
    const [x1, x2] = [Math.round(frame.x(cell.t1)), Math.round(frame.x(cell.t2))];
    const least = isBounded(cell) ? 1 : EDGE;
    const y2 = Math.max(Math.round(frame.y(cell.lower)), MARGIN.top + least);
    const y1 = Math.min(Math.round(frame.y(cell.upper)), y2 - least);
    context.fillStyle = shade(cell.count);
    context.fillRect(x1, y1, Math.max(x2 - x1, 1), y2 - y1);
  }
  context.restore();
  frame.losses(context, losses);
  frame.peak = peak;
}

/** Ticks of a logarithmic axis on both sides of zero: powers of ten that leave room for their labels. */
function bothTicks(y, count) {
  const greatest = Math.max(...y.domain().map(Math.abs));
  const powers = Array.from({ length: 4 }, (_, at) => 10 ** (Math.floor(Math.log10(greatest)) - at));
  const [least, most] = y.domain();
  const room = Math.abs(y.range()[0] - y.range()[1]) / (2 * count);
  const ticks = [];
  for (const tick of [0, ...powers.flatMap((power) => [power, -power])]) {
    if (tick >= least && tick <= most && ticks.every((other) => Math.abs(y(other) - y(tick)) >= room)) ticks.push(tick);
  }
  return ticks;
}

/** 64 shades between the theme's stops, by name `--heat-0` to `--heat-5`. */
export function palette() {
  const stops = [0, 1, 2, 3, 4, 5].map((at) => colour(`heat-${at}`));
  const scale = scaleLinear(stops.map((_, at) => at / (stops.length - 1)), stops);
  return Array.from({ length: 64 }, (_, at) => scale(at / 63));
}

/** The legend: shades from one record to the most of a cell. */
export function ramp() {
  const stops = [0, 1, 2, 3, 4, 5].map((at) => colour(`heat-${at}`));
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
