// The three pictures: the rates of all sources, the quantiles of an index and its heat map, with their legends and SQL.
//
// `shown` has the answers: { span, label, names, rate, rates, losses, alerts, pins, quantiles, heat, bands, grouped }. `quantiles` and
// `heat` are null if the source has no index, or one of codes, which has `bands` instead; `grouped` is null unless the source is grouped. `label` names the
// window if another is beside it; both then have the same scales and colours.

import { alertKeys, drawAlerts } from "./alerts.js";
import { key, make, SqlDrawer } from "./dom.js";
import { fromTo, perSecond, places, plural, short, valueFormat, when, whole } from "./format.js";
import { colour, Frame } from "./frame.js";
import { chosenOf, drawBands, groupCondition } from "./groups.js";
import { drawHeat, ramp } from "./heat.js";
import { drawLines, seriesColour } from "./lines.js";
import { number } from "./api.js";
import { state } from "./state.js";

const QUANTILES = [["p50", "p50"], ["p99", "p99"], ["p99_9", "p99.9"], ["max", "max"]];
/** The reason of the records that `ingestd record --budget` leaves out. */
const LEFT_OUT = "sampled by choice";
/** Heights of the pictures in a low window and in a high one; in between they grow with it. */
const HEIGHTS = { rate: [84, 136], alone: [250, 290], quantiles: [96, 156], heat: [150, 272] };
const [LOW, HIGH] = [800, 1080];

function heightOf(name) {
  const [least, most] = HEIGHTS[name];
  return Math.round(least + Math.min(Math.max((innerHeight - LOW) / (HIGH - LOW), 0), 1) * (most - least));
}

/** The pictures of one window. */
export class Pictures {
  /**
   * `ids` are those of the figures. `choose.source(name)` is called when the user clicks a source in the legend, `choose.filter(condition)` for a group, and
   * `overlaid(box, us)` when the selection or the crosshair moves.
   */
  constructor(ids, choose, overlaid) {
    Object.assign(this, { choose, overlaid, shown: null, world: null, hovered: null, partner: null, follows: false });
    this.all = {
      rate: picture(ids.rate, "Records per second", false),
      quantiles: picture(ids.quantiles, "Quantiles", false),
      heat: picture(ids.heat, "Heat map", true),
    };
  }

  /** Takes the scales and colours of other pictures while it is shown. */
  follow(leader) {
    Object.assign(this, { partner: leader, follows: true });
  }

  /** Shows or hides all figures of pictures that follow. */
  show(answer) {
    this.partner.partner = answer ? this : null;
    this.shown = answer;
    for (const { figure } of Object.values(this.all)) figure.hidden = !answer;
  }

  /** Discards the scales, which otherwise stay while data arrive, so that new ones are chosen. */
  release(...names) {
    for (const name of names) this.all[name].frame.held = null;
  }

  /** Draws all pictures of an answer, or of the last one again. */
  draw(answer = this.shown, known = this.world) {
    [this.shown, this.world] = [answer, known];
    if (!this.shown || this.all.rate.figure.clientWidth === 0) return;
    const indexed = this.shown.quantiles !== null || this.shown.bands !== null;
    this.all.quantiles.figure.hidden = this.shown.quantiles === null;
    this.all.heat.figure.hidden = !indexed;
    this.all.rate.frame.axis = !indexed;
    const isAlone = !indexed && !state.source.startsWith("metrics/");
    this.all.rate.frame.height = heightOf(isAlone ? "alone" : "rate");
    for (const name of ["quantiles", "heat"]) this.all[name].frame.height = heightOf(name);
    this.drawRate();
    if (this.shown.quantiles) this.drawQuantiles();
    if (this.shown.bands) this.drawCategories();
    else if (indexed) this.drawHeatMap();
    // The window moves under a pointer that rests.
    if (this.hovered) this.hovered.us = this.all.rate.frame.x.invert(this.hovered.x);
    this.drawOverlays();
  }

  /** Moves the crosshair: to { us, y }, with the height in the heat map if the pointer is there, or away with null. */
  hover(at) {
    this.hovered = at && this.shown && { ...at, x: this.all.rate.frame.x(at.us) };
    if (this.shown) this.drawOverlays();
  }

  /** The value under the pointer; null if it is not in a heat map. */
  get value() {
    const { frame } = this.all.heat;
    const y = this.hovered?.y ?? null;
    return y === null || frame.bands ? null : frame.y.invert(y);
  }

  /** Draws on the scale of the pictures beside them. */
  beside(name) {
    const { frame, side } = this.all[name];
    side.textContent = this.shown.label ?? "";
    side.hidden = !this.shown.label;
    if (this.follows) frame.held = this.partner.all[name].frame.held;
    return frame.begin(this.shown.span);
  }

  rateLines() {
    const { rates, names, grouped } = this.shown;
    if (grouped) return grouped.of.groups.map((group) => ({ points: group.rates, colour: group.colour, wide: false }));
    return names.map((name) => ({ points: rates.points(name), colour: seriesColour(this.orderOf(name)), wide: name === state.source }));
  }

  /** A source has one colour in both windows. */
  orderOf(name) {
    const { names } = this.shown;
    const first = this.follows ? this.partner.shown.names : names;
    return [...first, ...names.filter((own) => !first.includes(own))].indexOf(name);
  }

  drawRate() {
    const { rate, rates, losses, grouped } = this.shown;
    const { frame } = this.all.rate;
    const context = this.beside("rate");
    this.all.rate.heading.textContent = grouped ? `${state.source} per second, by ${state.group}` : "Records per second";
    const width = grouped?.of.width ?? rates.width;
    drawLines(frame, context, { series: this.rateLines(), also: this.partner?.rateLines() ?? [], width, log: false, label: short, losses: losses.rows });
    frame.removed(context, this.world);
    drawAlerts(frame, context, this.shown.alerts.rows, this.shown.pins.rows);
    finish(this.all.rate, this.shown.grouped ?? rate, rate.rows.length === 0 && !rate.error ? "There are no records in this window." : null);
  }

  quantileLines() {
    const { rows } = this.shown.quantiles ?? { rows: [] };
    const { grouped, rates } = this.shown;
    if (grouped) return grouped.of.groups.map((group) => ({ points: group.quantiles, colour: group.colour, wide: false }));
    return QUANTILES.map(([column]) => ({
      points: rows.flatMap((row, at) => [
        ...(at > 0 && row.bucket - rows[at - 1].bucket > rates.width * 1.5 ? [[row.bucket - rates.width, null]] : []),
        [row.bucket, row[column] === null ? null : number(row[column])],
      ]),
      colour: colour(`q-${column}`),
      wide: column === "p99",
    }));
  }

  drawQuantiles() {
    const { quantiles, losses, grouped } = this.shown;
    const width = grouped?.of.width ?? this.shown.rates.width;
    const { frame, heading } = this.all.quantiles;
    const context = this.beside("quantiles");
    const [series, also] = [this.quantileLines(), this.partner?.quantileLines() ?? []];
    const values = [...series, ...also].flatMap(({ points }) => points.map(([, value]) => value)).filter(Number.isFinite);
    const log = values.length > 0 && values.every((value) => value > 0);
    drawLines(frame, context, { series, also, width, log, label: this.format(), losses: losses.rows });
    frame.removed(context, this.world);
    drawAlerts(frame, context, this.shown.alerts.rows, this.shown.pins.rows);
    heading.textContent = grouped ? `${state.source} ${state.index}, p99 by ${state.group}` : `${state.source} ${state.index}`;
    finish(this.all.quantiles, this.shown.grouped ?? quantiles, null);
    this.shown.quantileOf = (us) => quantiles.rows.find(({ bucket }) => us >= bucket && us < bucket + this.shown.rates.width);
  }

  /** An index of labels or codes has a band for each value. */
  drawCategories() {
    const { bands, losses } = this.shown;
    const { frame, heading } = this.all.heat;
    const context = this.beside("heat");
    drawBands(frame, context, bands.of, this.partner?.shown.bands?.of.groups ?? [], losses.rows);
    frame.removed(context, this.world);
    drawAlerts(frame, context, this.shown.alerts.rows, this.shown.pins.rows);
    heading.textContent = `${state.source}, records by ${this.world.field(state.source, state.index)}`;
    finish(this.all.heat, bands, bands.rows.length === 0 && !bands.error ? "The index has no values in this window." : null);
  }

  drawHeatMap() {
    const { heat, losses } = this.shown;
    const { frame, heading } = this.all.heat;
    const context = this.beside("heat");
    drawHeat(frame, context, { cells: heat.cells, also: this.partner?.shown.heat?.cells ?? [], label: this.format(), losses: losses.rows });
    frame.removed(context, this.world);
    drawAlerts(frame, context, this.shown.alerts.rows, this.shown.pins.rows);
    heading.textContent = `${state.source} ${state.index}, records by value`;
    finish(this.all.heat, heat, heat.rows.length === 0 && !heat.error ? "The index has no values in this window." : null);
  }

  format() {
    return valueFormat(this.world.field(state.source, state.index));
  }

  /** Draws the selection, or the `box` that is dragged, and what is under the pointer. */
  drawOverlays(box = state.selection) {
    const only = (frame) => (frame === this.all.heat.frame ? box && { ...box, groups: this.chosenGroups(box) } : box && { from: box.from, to: box.to });
    for (const { figure, frame } of Object.values(this.all)) {
      if (!figure.hidden && frame.x) frame.overlay(only(frame), this.hovered?.us ?? null, frame === this.all.heat.frame && box === state.selection ? this.pointed() : null);
    }
    this.overlaid(box, this.hovered?.us ?? null);
    this.drawLegends();
  }

  /** The groups whose bands a selection covers; null if it covers them all. */
  chosenGroups({ where }) {
    return where && this.shown.bands ? chosenOf(this.shown.bands.of, where) : null;
  }

  drawLegends() {
    const us = this.hovered?.us ?? null;
    const at = us === null ? "" : when(us, places((this.shown.span.to - this.shown.span.from) / 300));
    // On a narrow page this has a row of its own, also without text, so that no picture moves under the pointer.
    const read = (text) => make("span", { className: "read" }, text);
    const rates = this.shown.names.map((name) => {
      const value = us === null ? this.shown.rates.mean(name) : this.shown.rates.at(name, us);
      const button = make("button", { type: "button", onclick: () => this.choose.source(name) });
      button.setAttribute("aria-pressed", String(name === state.source));
      button.append(key(seriesColour(this.orderOf(name)), name, " ", make("b", {}, value === undefined ? "–" : perSecond(value))));
      return button;
    });
    replace(this.all.rate.legend, [...(this.shown.grouped ? this.groupKeys("rates", us, perSecond) : rates), ...this.lossKey(), ...alertKeys(this.shown.alerts, this.shown.pins), read(at)]);
    const hint = this.follows || state.selection ? "" : "drag to read the records behind an area";
    const bar = make("i", { className: "ramp" });
    bar.style.background = ramp();
    const scale = make("span", {}, "1", bar, plural(this.all.heat.frame.peak ?? 1));
    const { value } = this;
    replace(this.all.heat.legend, [scale, read([at, value !== null && this.format()(value)].filter(Boolean).join(", ") || hint)]);
    if (this.shown.quantiles === null) return;
    const row = us === null ? this.shown.quantiles.rows.at(-1) : this.shown.quantileOf(us);
    const write = this.format();
    replace(
      this.all.quantiles.legend,
      this.shown.grouped ? this.groupKeys("quantiles", us, write) : QUANTILES.map(([column, name]) => key(colour(`q-${column}`), name, " ", make("b", {}, row ? write(number(row[column])) : "–"))),
    );
  }

  /** The cell under the pointer, of a value or of a band, as the frame draws it. */
  pointed() {
    const { frame } = this.all.heat;
    const y = this.hovered?.y ?? null;
    if (y === null) return null;
    const { value, shown: { span } } = this;
    const us = Math.min(this.hovered.us, span.to - 1);
    // Only records of the window are counted, also in a cell that it cuts.
    const cell = (t1, t2, top, bottom, ...texts) => {
      const [from, to] = [Math.max(t1, span.from), Math.min(t2, span.to)];
      return { x: frame.x(from), y: top, width: frame.x(to) - frame.x(from), height: Math.max(bottom - top, 3), lines: [...texts, fromTo(from, to, places(t2 - t1))] };
    };
    if (frame.bands) {
      const { bucketOf, width } = this.shown.bands.of;
      const band = frame.bands.find(({ top, bottom }) => y >= top && y < bottom);
      const from = bucketOf(us);
      return band ? cell(from, from + width, band.top, band.bottom, band.group.name, plural(band.group.cells.get(from)?.count ?? 0)) : null;
    }
    const found = this.shown.heat?.cells.find(({ t1, t2, lower, upper }) => us >= t1 && us < t2 && value >= lower && value < upper);
    if (!found) return null;
    const { t1, t2, lower, upper, count } = found;
    const write = this.format();
    return cell(t1, t2, frame.y(upper), frame.y(lower), `${write(lower)} – ${write(upper)}`, plural(count));
  }

  /** The groups in a legend, with their value under the pointer, or else their mean rate or newest quantile. */
  groupKeys(points, us, write) {
    const grouped = this.shown.grouped.of;
    const seconds = (this.shown.span.to - this.shown.span.from) / 1e6;
    return grouped.groups.map((group) => {
      const idle = points === "rates" ? group.count / seconds : group.quantiles.findLast(([, value]) => value !== null)?.[1];
      const value = us === null ? idle : grouped.find(group[points], us);
      const condition = groupCondition(grouped, group);
      return make("button", { type: "button", title: `Click to filter: ${condition}`, onclick: () => this.choose.filter(condition) }, key(group.colour, group.name, " ", make("b", {}, value === undefined || value === null ? "–" : write(value))));
    });
  }

  /** Loss entries of the legend: the numbers of records that were lost and that a recording left out, and of gaps of unknown size. */
  lossKey() {
    const { rows } = this.shown.losses;
    if (this.shown.losses.error) return [make("span", {}, `losses unknown: ${this.shown.losses.error}`)];
    if (rows.length === 0) return [];
    const { lost = [], leftOut = [] } = Object.groupBy(rows, ({ reason }) => (reason === LEFT_OUT ? "leftOut" : "lost"));
    const count = (some, word) => {
      const known = some.reduce((sum, { records }) => sum + Number(records ?? 0), 0);
      return known > 0 && `${whole(known)} ${word}`;
    };
    const gaps = rows.filter(({ records }) => records === null).length;
    const words = [count(lost, "lost"), count(leftOut, "left out"), gaps > 0 && `${gaps} ${gaps === 1 ? "gap" : "gaps"} of unknown size`].filter(Boolean).join(", ");
    const reasons = [...new Set(rows.map(({ source, stage, reason }) => `${source ?? "all sources"}: ${reason} (${stage})`))].join("\n");
    return [make("span", { title: reasons }, make("i", { className: "hatch" }), make("b", {}, words))];
  }
}

function finish({ figure, frame, drawer }, answer, empty) {
  drawer.show(answer.sql);
  frame.note.hidden = !answer.error && !empty;
  frame.note.className = answer.error ? "note bad" : "note";
  frame.note.textContent = answer.error ?? empty ?? "";
  figure.dataset.state = answer.error ? "failed" : empty ? "empty" : "shown";
}

const replace = (element, children) => element.replaceChildren(...children.filter(Boolean));

function picture(id, title, axis) {
  const figure = document.getElementById(id);
  const frame = new Frame(figure, axis);
  const drawer = new SqlDrawer();
  const heading = make("h2", {}, title);
  const side = make("span", { className: "side", hidden: true });
  const legend = make("div", { className: "legend" });
  frame.head.append(heading, side, legend, drawer.button);
  frame.head.after(drawer.drawer);
  return { figure, frame, drawer, heading, side, legend };
}
