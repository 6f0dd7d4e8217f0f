// The heat map: cells of time and value, coloured by the logarithm of their count.

import { scaleLinear, scaleLog } from "d3-scale";
import { MARGIN, colour } from "./frame.js";
import { logTicks } from "./lines.js";

/** Draws `cells` [{ t1, t2, lower, upper, count }] into a frame; the axis is logarithmic unless a value lies below zero. */
export function drawHeat(frame, context, { cells, label, losses }) {
  const drawn = cells.filter(({ lower, upper }) => lower !== null && upper !== null);
  const [least, most] = extent(drawn);
  const log = least >= 0;
  frame.values = true;
  if (log) {
    const positive = drawn.reduce((found, { lower, upper }) => Math.min(found, lower > 0 ? lower : upper / 2), Infinity);
    const floor = Number.isFinite(positive) ? positive : 1;
    const held = frame.held?.domain;
    const keeps = frame.held?.log && held[0] <= floor && held[1] >= most && held[1] / held[0] <= 4 * (most / floor);
    frame.held = keeps ? frame.held : { log, domain: [floor, Math.max(most, floor * 2) * (most / floor) ** 0.05] };
    frame.y = scaleLog(frame.held.domain, [frame.bottom, MARGIN.top]).clamp(true);
  } else {
    frame.held = null;
    frame.y = scaleLinear([least, most], [frame.bottom, MARGIN.top]).clamp(true);
  }
  const peak = drawn.reduce((found, { count }) => Math.max(found, count), 1);
  const shades = palette();
  const shade = (count) => shades[peak === 1 ? shades.length - 1 : Math.round((Math.log(count) / Math.log(peak)) * (shades.length - 1))];
  const count = Math.max(2, Math.floor((frame.bottom - MARGIN.top) / 40));
  frame.grid(context, log ? logTicks(frame.y.domain(), count) : frame.y.ticks(count), label);
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, frame.right - MARGIN.left, frame.bottom - MARGIN.top);
  context.clip();
  for (const cell of drawn) {
    const [x1, x2] = [Math.round(frame.x(cell.t1)), Math.round(frame.x(cell.t2))];
    const [y1, y2] = [Math.round(frame.y(cell.upper)), Math.round(frame.y(cell.lower))];
    context.fillStyle = shade(cell.count);
    context.fillRect(x1, y1, Math.max(x2 - x1, 1), Math.max(y2 - y1, 1));
  }
  context.restore();
  frame.losses(context, losses);
  frame.peak = peak;
}

function extent(cells) {
  let [least, most] = [Infinity, -Infinity];
  for (const { lower, upper } of cells) {
    least = Math.min(least, lower);
    most = Math.max(most, upper);
  }
  return cells.length ? [least, most] : [1, 10];
}

/** 64 shades between the theme's stops, by name `--heat-0` to `--heat-5`. */
function palette() {
  const stops = [0, 1, 2, 3, 4, 5].map((at) => colour(`heat-${at}`));
  const scale = scaleLinear(stops.map((_, at) => at / (stops.length - 1)), stops);
  return Array.from({ length: 64 }, (_, at) => scale(at / 63));
}

/** The legend: shades from one record to the most of a cell. */
export function ramp() {
  const stops = [0, 1, 2, 3, 4, 5].map((at) => colour(`heat-${at}`));
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
