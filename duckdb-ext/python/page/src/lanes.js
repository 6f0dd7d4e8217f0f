// A time line with a lane for each source: records as ticks, and those that last as bars.

import { scaleLinear } from "d3-scale";
import { make } from "./dom.js";
import { valueFormat } from "./format.js";
import { colour, fit, line } from "./frame.js";

const LANE = 30;
const AXIS = 20;
const INSET = 36;
const NEAR_PX = 6;

export class Lanes {
  constructor() {
    this.canvas = make("canvas");
    this.text = make("p", { className: "pointed" });
    this.element = make("div", { className: "lanes" }, this.canvas, this.text);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.text.textContent = ""));
  }

  /**
   * Shows lanes [{ name, colour, marks: [{ from, to, at, isOwn, text }] }] between two times in nanoseconds; `label` writes a time. `under` is an
   * element whose left and right edge have these times.
   */
  show(lanes, from, to, label = signed, under = null) {
    Object.assign(this, { lanes, from, to, label, under });
    this.text.textContent = "";
    this.draw();
  }

  draw() {
    if (!this.lanes) return;
    const width = this.element.clientWidth;
    const height = this.lanes.length * LANE + AXIS;
    const context = fit(this.canvas, width, height);
    this.x = scaleLinear([this.from, this.to], this.edges(width));
    const bottom = height - AXIS;
    context.font = `11px ${colour("font")}`;
    Object.assign(context, { lineWidth: 1, textBaseline: "top", textAlign: "center" });
    // Under spans, times count from the first of them.
    const origin = this.under ? this.from : 0;
    for (const tick of scaleLinear([this.from - origin, this.to - origin], [0, 1]).ticks(Math.max(2, Math.floor(width / 160)))) {
      const x = Math.round(this.x(tick + origin)) + 0.5;
      context.strokeStyle = colour("grid");
      line(context, x, 0, x, bottom);
      context.fillStyle = colour("muted");
      context.fillText(this.label(tick), x, bottom + 5);
    }
    this.lanes.forEach(({ name, colour: shade, marks }, order) => {
      const y = order * LANE;
      context.strokeStyle = colour("line");
      line(context, 0, y + LANE - 0.5, width, y + LANE - 0.5);
      context.fillStyle = context.strokeStyle = shade;
      for (const { from, to, at } of marks) {
        if (to > from) {
          context.globalAlpha = 0.22;
          context.fillRect(this.x(from), y + 15, Math.max(this.x(to) - this.x(from), 1), 9);
        }
        context.globalAlpha = 0.75;
        context.fillRect(this.x(at) - 0.5, y + 13, 1, 13);
      }
      context.globalAlpha = 1;
      context.fillStyle = colour("select");
      for (const { from, to, isOwn } of marks) if (isOwn) context.fillRect(this.x(from) - 1, y + 14, Math.max(this.x(to) - this.x(from), 3), 11);
      Object.assign(context, { textAlign: "left", fillStyle: colour("ink") });
      context.fillText(name, 6, y + 2);
    });
  }

  edges(width) {
    if (!this.under?.isConnected) return [INSET, width - INSET];
    const [own, over] = [this.element, this.under].map((element) => element.getBoundingClientRect());
    return [over.left - own.left, over.right - own.left];
  }

  /** Shows the text of the mark under the pointer: the nearest tick, or else the shortest bar. */
  point(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, lane] = [event.clientX - left, this.lanes[Math.floor((event.clientY - top) / LANE)]];
    const apart = (mark) => Math.abs(this.x(mark.at) - x);
    const nearest = (lane?.marks ?? []).reduce((best, mark) => (best === null || apart(mark) < apart(best) ? mark : best), null);
    const over = (lane?.marks ?? []).filter(({ from, to }) => this.x(from) <= x && x <= this.x(to)).sort((a, b) => a.to - a.from - (b.to - b.from))[0];
    const found = nearest && apart(nearest) <= NEAR_PX ? nearest : over;
    this.text.textContent = found?.text ?? "";
  }
}

const signed = (ns) => (ns === 0 ? "0" : `${ns > 0 ? "+" : "−"}${valueFormat("ns")(Math.abs(ns))}`);
