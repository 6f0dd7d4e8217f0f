// The metrics of a source of series: a picture for each, counters as rates, with a line for all series or for each value of a label.

import { number, query } from "./api.js";
import { key, make, options, SqlDrawer } from "./dom.js";
import { perSecond, short, valueFormat, whole } from "./format.js";
import { Frame } from "./frame.js";
import { widthOf } from "./groups.js";
import { drawLines, seriesColour } from "./lines.js";
import * as sql from "./sql.js";

const HEIGHT = 110;
const SHOWN = 12;
const LINES = 10;
/** A rate needs some samples. */
const SAMPLES = 4;
const COUNTER = /_(total|count|sum|bucket)$/;
const UNIT = /_(seconds|milliseconds|bytes)$/;

/** Whether a source holds series. */
export const isSeries = (source) => source.startsWith("metrics/");

const formatOf = (metric) => {
  const unit = UNIT.exec(metric)?.[1];
  return unit === "seconds" ? (value) => valueFormat("ns")(value * 1e9) : unit === "milliseconds" ? valueFormat("ms") : unit === "bytes" ? valueFormat("bytes") : short;
};

export class Metrics {
  /** `actions`: { hover(at), brush(box, done, frame), click(), changed({ find, split }) }. */
  constructor(section, actions) {
    this.section = section;
    this.actions = actions;
    this.find = make("input", { type: "search", placeholder: "Metric", ariaLabel: "Metric", spellcheck: false, oninput: () => actions.changed({ find: this.find.value }) });
    this.split = make("select", { ariaLabel: "Split by a label", onchange: () => actions.changed({ split: this.split.value || null }) });
    this.said = make("span", { className: "said" });
    this.grid = make("div", { className: "grid" });
    this.more = make("button", { type: "button", className: "quiet", onclick: () => ((this.most += SHOWN), actions.changed({})) }, "Show more");
    this.most = SHOWN;
    this.pictures = new Map();
    section.append(make("div", { className: "filter" }, this.find, make("label", {}, "Split by ", this.split), this.said), this.grid, this.more);
  }

  /** Shows the metrics of a source in a window; `asked` is { dir, source, find, split, span, held, losses, signal }, with `held` from loom_sources. */
  async show(asked) {
    this.asked = asked;
    const { dir, source, find, split, signal } = asked;
    if (this.source !== source) {
      this.most = SHOWN;
      this.pictures.clear();
      this.grid.replaceChildren();
    }
    this.source = source;
    if (document.activeElement !== this.find) this.find.value = find;
    const [{ rows: metrics }, { rows: labels }] = await Promise.all([query(sql.metrics(dir, source), signal), query(sql.seriesLabels(dir, source), signal)]);
    if (signal.aborted) return;
    const several = labels.filter(({ values }) => Number(values) > 1).map(({ label }) => label);
    options(this.split, [["", "nothing"], ...several.map((label) => [label, label])], several.includes(split) ? split : "");
    const chosen = metrics.filter(({ metric }) => metric.toLowerCase().includes(find.toLowerCase()));
    const shown = chosen.slice(0, this.most);
    this.said.textContent = `${whole(chosen.length)} of ${whole(metrics.length)} metrics${shown.length < chosen.length ? `, the first ${shown.length} are shown` : ""}`;
    this.more.hidden = shown.length === chosen.length;
    const only = Object.fromEntries(labels.filter(({ label, values }) => Number(values) === 1 && (label === "job" || label === "instance")).map(({ label, value }) => [label, value]));
    const pictures = shown.map(({ metric, series }) => this.picture(metric, Number(series)));
    this.grid.replaceChildren(...pictures.map(({ figure }) => figure));
    await Promise.all(pictures.map((picture) => this.draw(picture, only, this.split.value || null, asked)));
    if (!signal.aborted) this.section.dataset.state = "shown";
  }

  picture(metric, series) {
    if (this.pictures.has(metric)) return this.pictures.get(metric);
    const figure = make("figure", {});
    figure.dataset.metric = metric;
    const frame = new Frame(figure, true);
    frame.height = HEIGHT;
    const drawer = new SqlDrawer();
    const heading = make("h2", { title: `${metric}, ${whole(series)} series` }, COUNTER.test(metric) ? `${metric} per second` : metric);
    const legend = make("div", { className: "legend" });
    frame.head.append(heading, legend, drawer.button);
    frame.head.after(drawer.drawer);
    const picture = { metric, figure, frame, drawer, legend };
    frame.listen({ hover: (us) => this.actions.hover(us), brush: (box, done) => this.actions.brush(box, done, frame), click: this.actions.click });
    this.pictures.set(metric, picture);
    return picture;
  }

  async draw(picture, only, split, { dir, span, held, losses, signal }) {
    const { metric, figure, frame, drawer } = picture;
    const apart = Number(held.records) > 1 ? (held.last_ts - held.first_ts) / (Number(held.records) - 1) : 0;
    const width = Math.max(widthOf(span), 1000);
    const isCounter = COUNTER.test(metric);
    const text = isCounter ? sql.counter(dir, metric, only, split, span, Math.max(width, widthOf({ from: 0, to: apart * 150 }), 1000), Math.ceil(Math.max(width, apart * SAMPLES))) : sql.gauge(dir, metric, only, split, span, Math.max(width, widthOf({ from: 0, to: apart * 150 })));
    drawer.show(text);
    try {
      const { rows } = await query(text, signal);
      if (signal.aborted) return;
      Object.assign(picture, { error: null, lines: linesOf(rows), span, losses, write: isCounter ? perSecond : formatOf(metric) });
    } catch (error) {
      if (signal.aborted) return;
      Object.assign(picture, { error: error.message, lines: [], span, losses, write: short });
    }
    frame.note.hidden = picture.error === null && picture.lines.length > 0;
    frame.note.className = picture.error ? "note bad" : "note";
    frame.note.textContent = picture.error ?? "There are no samples in this window.";
    figure.dataset.state = picture.error ? "failed" : "shown";
    this.paint(picture);
  }

  /** Draws a picture again, or all of them. */
  paint(only = null) {
    for (const picture of only ? [only] : this.pictures.values()) {
      const { frame, lines, span, losses, write } = picture;
      if (!lines || !frame.figure.isConnected || frame.figure.clientWidth === 0) continue;
      const context = frame.begin(span);
      drawLines(frame, context, { series: lines.map(({ points }, order) => ({ points, colour: seriesColour(order), wide: false })), width: 0, log: false, label: write, losses });
    }
    this.overlay(null, null);
  }

  /** Draws the selection and the crosshair, and writes the values under it. */
  overlay(box, us) {
    for (const { frame, legend, lines, write } of this.pictures.values()) {
      if (!lines || !frame.x || !frame.figure.isConnected) continue;
      frame.overlay(box && { from: box.from, to: box.to }, us);
      legend.replaceChildren(
        ...lines.map(({ name, points }, order) => {
          const value = us === null ? points.at(-1)?.[1] : points.reduce((best, point) => (Math.abs(point[0] - us) < Math.abs(best[0] - us) ? point : best), points[0])?.[1];
          return key(seriesColour(order), ...(name === null ? [] : [name, " "]), make("b", {}, value === undefined || value === null ? "–" : write(value)));
        }),
      );
    }
  }
}

/** The lines of rows [{ us, split, value }], the greatest first. */
function linesOf(rows) {
  const lines = [...Map.groupBy(rows, ({ split }) => split)].map(([name, own]) => ({ name, points: own.map(({ us, value }) => [us, number(value)]).sort((a, b) => a[0] - b[0]) }));
  const most = ({ points }) => points.reduce((found, [, value]) => (Number.isFinite(value) ? Math.max(found, value) : found), -Infinity);
  return lines.sort((a, b) => most(b) - most(a)).slice(0, LINES);
}
