// The frame of a picture: a canvas in a figure, the time axis, grid, losses, crosshair, selection and the cell under the pointer, and dragging a range.
//
// A picture is { figure, draw(paint), height }. `Frame` draws everything under and over it. Coordinates are CSS pixels.

import { scaleLinear, scaleTime, scaleUtc } from "d3-scale";
import { make } from "./dom.js";
import { state } from "./state.js";
import { tick } from "./format.js";

export const MARGIN = { left: 66, right: 18, top: 8, bottom: 6 };
const AXIS = 22;
const DRAG_MIN = 4;
/** The distance of a cell's text from the cell, and from the edge of the figure. */
const [TIP_GAP, TIP_EDGE] = [8, 4];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Ticks of a time axis in microseconds, at round times of the chosen zone; coarse ones by the calendar, fine ones by tens. */
function timeTicks(span, count) {
  if (span.to - span.from < 2e6) return scaleLinear([span.from, span.to], [0, 1]).ticks(count);
  const scale = state.utc ? scaleUtc() : scaleTime();
  return scale.domain([span.from / 1000, span.to / 1000]).ticks(count).map((date) => date.getTime() * 1000);
}

export class Frame {
  /** `axis` is true if the labels of the time axis are shown. */
  constructor(figure, axis) {
    this.figure = figure;
    this.axis = axis;
    this.height = 0;
    this.head = figure.appendChild(document.createElement("figcaption"));
    this.note = figure.appendChild(Object.assign(document.createElement("p"), { className: "note", hidden: true }));
    this.canvas = figure.appendChild(document.createElement("canvas"));
    this.over = figure.appendChild(Object.assign(document.createElement("canvas"), { className: "over" }));
    this.cell = figure.appendChild(make("div", { className: "cell", hidden: true }));
    this.tip = figure.appendChild(make("div", { className: "tip", hidden: true }));
    this.span = { from: 0, to: 1 };
    this.y = scaleLinear([0, 1], [0, 1]);
  }

  get bottom() {
    return this.height - MARGIN.bottom - (this.axis ? AXIS : 0);
  }

  get right() {
    return this.width - MARGIN.right;
  }

  /** Fits the canvases to the figure and clears the lower one; returns its context. */
  begin(span) {
    this.span = span;
    this.width = this.figure.clientWidth;
    this.x = scaleLinear([span.from, span.to], [MARGIN.left, this.right]);
    const context = fit(this.canvas, this.width, this.height);
    fit(this.over, this.width, this.height);
    return context;
  }

  /** Draws the grid, with labels for the ticks of `y`. */
  grid(context, ticks, label) {
    context.font = `11px ${colour("font")}`;
    context.strokeStyle = colour("grid");
    context.fillStyle = colour("muted");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of ticks) {
      const y = Math.round(this.y(value)) + 0.5;
      line(context, MARGIN.left, y, this.right, y);
      context.fillText(fitted(context, label(value), MARGIN.left - 12), MARGIN.left - 8, y);
    }
    const times = timeTicks(this.span, Math.max(2, Math.floor((this.right - MARGIN.left) / 110)));
    const step = times.length > 1 ? times[1] - times[0] : this.span.to - this.span.from;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const us of times) {
      const x = Math.round(this.x(us)) + 0.5;
      line(context, x, MARGIN.top, x, this.bottom);
      const text = tick(us, step);
      const half = context.measureText(text).width / 2;
      if (this.axis && x + half < this.width - 6) context.fillText(text, x, this.bottom + 7);
    }
  }

  /** Hatches the spans in which records are missing. */
  losses(context, losses) {
    if (losses.length === 0) return;
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, this.right - MARGIN.left, this.bottom - MARGIN.top);
    context.clip();
    context.beginPath();
    for (const { from_ts, to_ts } of losses) {
      const from = this.x(from_ts);
      const to = Math.max(this.x(to_ts), from + 5);
      context.rect(from, MARGIN.top, to - from, this.bottom - MARGIN.top);
    }
    context.fillStyle = colour("loss-wash");
    context.fill();
    context.clip();
    context.strokeStyle = colour("loss");
    context.lineWidth = 1;
    for (let x = MARGIN.left - this.height; x < this.right; x += 6) line(context, x, this.bottom, x + this.height, this.bottom - this.height);
    context.restore();
  }

  /** Shades the time before the oldest record, from which retention has removed the records. */
  removed(context, { evicts, oldest }) {
    if (!evicts || oldest === null || oldest <= this.span.from) return;
    const width = Math.min(this.x(oldest), this.right) - MARGIN.left;
    context.fillStyle = colour("removed");
    context.fillRect(MARGIN.left, MARGIN.top, width, this.bottom - MARGIN.top);
    const text = "removed by retention";
    context.font = `11px ${colour("font")}`;
    if (context.measureText(text).width + 16 > width) return;
    Object.assign(context, { fillStyle: colour("muted"), textAlign: "center", textBaseline: "top" });
    context.fillText(text, MARGIN.left + width / 2, MARGIN.top + 6);
  }

  /** The heights that a selection covers, [[top, bottom]]: that of its values, or those of its groups, where bands side by side are one. */
  covered({ vMin, vMax, groups }) {
    if (this.bands && groups) {
      const runs = [];
      for (const { top, bottom } of this.bands.filter(({ group }) => groups.includes(group))) {
        if (runs.length && top - runs.at(-1)[1] < 1) runs.at(-1)[1] = bottom;
        else runs.push([top, bottom]);
      }
      return runs;
    }
    const values = vMin !== undefined && this.values;
    const at = (value, edge) => (values && value !== null ? this.y(Math.max(value, this.y.domain()[0])) : edge);
    return [[at(vMax, MARGIN.top), at(vMin, this.bottom)]];
  }

  /** Draws the selection, the crosshair unless `us` is null, and a cell { x, y, width, height, lines }. A value bound of null is the edge of the picture. */
  overlay(box, us, cell = null) {
    const context = fit(this.over, this.width, this.height);
    if (box) {
      const [left, right] = [this.x(box.from), this.x(box.to)].map((x) => Math.min(Math.max(x, MARGIN.left), this.right));
      for (const [top, bottom] of this.covered(box)) {
        const [y, height] = [Math.max(top, MARGIN.top), Math.min(bottom, this.bottom) - Math.max(top, MARGIN.top)];
        if (right <= MARGIN.left || left >= this.right || height <= 0) continue;
        context.fillStyle = colour("select-wash");
        context.strokeStyle = colour("select");
        context.lineWidth = 1.5;
        context.fillRect(left, y, Math.max(right - left, 1), height);
        context.strokeRect(left, y, Math.max(right - left, 1), height);
      }
    }
    if (us !== null && us >= this.span.from && us <= this.span.to) {
      context.strokeStyle = colour("cross");
      context.lineWidth = 1;
      const x = Math.round(this.x(us)) + 0.5;
      line(context, x, MARGIN.top, x, this.bottom);
    }
    this.pointed(cell);
  }

  /** Frames the cell under the pointer, with its text on the side that has more room; without a cell, hides both. */
  pointed(cell) {
    this.cell.hidden = this.tip.hidden = cell === null;
    if (cell === null) return;
    const above = this.figure.clientHeight - this.height;
    const place = (element, left, top) => Object.assign(element.style, { left: `${left}px`, top: `${top}px` });
    place(this.cell, cell.x, above + cell.y);
    Object.assign(this.cell.style, { width: `${cell.width}px`, height: `${cell.height}px` });
    this.tip.replaceChildren(...cell.lines.map((text) => make("div", {}, text)));
    const end = cell.x + cell.width;
    const isLeft = cell.x > this.width - end;
    this.tip.style.maxWidth = `${(isLeft ? cell.x : this.width - end) - TIP_GAP - TIP_EDGE}px`;
    const lowest = this.figure.clientHeight - TIP_EDGE - this.tip.offsetHeight;
    place(this.tip, isLeft ? cell.x - TIP_GAP - this.tip.offsetWidth : end + TIP_GAP, Math.max(Math.min(above + cell.y - TIP_EDGE, lowest), TIP_EDGE));
  }

  /** Calls `hover(us, y)` under the pointer (null when it leaves), `brush(box, done)` during a drag, and `click` without one. */
  listen({ hover, brush, click }) {
    let start = null;
    let moved = false;
    const at = (event) => {
      const bounds = this.over.getBoundingClientRect();
      return {
        x: Math.min(Math.max(event.clientX - bounds.left, MARGIN.left), this.right),
        y: Math.min(Math.max(event.clientY - bounds.top, MARGIN.top), this.bottom),
      };
    };
    const box = (end) => ({ x: [start.x, end.x].sort((a, b) => a - b), y: [start.y, end.y].sort((a, b) => a - b) });
    this.over.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.x) return;
      this.over.setPointerCapture(event.pointerId);
      start = at(event);
      moved = false;
    });
    this.over.addEventListener("pointermove", (event) => {
      if (!this.x) return;
      const here = at(event);
      hover(this.x.invert(here.x), here.y);
      if (!start) return;
      moved ||= Math.hypot(here.x - start.x, here.y - start.y) >= DRAG_MIN;
      if (moved) brush(box(here), false);
    });
    this.over.addEventListener("pointerup", (event) => {
      if (start && moved) brush(box(at(event)), true);
      else if (start) click();
      start = null;
      // During a drag the pointer went on.
      const here = at(event);
      if (this.x) hover(this.x.invert(here.x), here.y);
    });
    this.over.addEventListener("pointercancel", () => {
      if (start && moved) click();
      start = null;
    });
    this.over.addEventListener("pointerleave", () => start || hover(null, null));
  }
}

/** A text, shortened if it is wider than some pixels. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let kept = Math.min(text.length, width);
  while (kept > 1 && context.measureText(`${text.slice(0, kept)}…`).width > width) kept -= 1;
  return `${text.slice(0, kept)}…`;
}

export function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

/** Fits a canvas to a size and clears it; returns its context. */
export function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
