// The three pictures: the rates of all sources, the quantiles of an index and its heat map, with their legends and SQL.
//
// `shown` has the answers: { span, names, rate, rates, losses, alerts, pins, quantiles, heat, bands, grouped }. `quantiles` and
// `heat` are null if the source has no index, or one of codes, which has `bands` instead; `grouped` is null unless the source is grouped.

import { alertKeys, drawAlerts } from "./alerts.js";
import { key, make, SqlDrawer } from "./dom.js";
import { perTime, places, plural, short, valueFormat, when, whole } from "./format.js";
import { colour, Frame } from "./frame.js";
import { drawBands, groupCondition } from "./groups.js";
import { drawHeat, ramp } from "./heat.js";
import { drawLines, seriesColour } from "./lines.js";
import { number } from "./api.js";
import { state } from "./state.js";

const QUANTILES = [["p50", "p50"], ["p99", "p99"], ["p99_9", "p99.9"], ["max", "max"]];
/** Heights of the pictures in a low window and in a high one; in between they grow with it. */
const HEIGHTS = { rate: [84, 136], alone: [250, 290], quantiles: [96, 156], heat: [150, 272] };
const [LOW, HIGH] = [800, 1080];

function heightOf(name) {
  const [least, most] = HEIGHTS[name];
  return Math.round(least + Math.min(Math.max((innerHeight - LOW) / (HIGH - LOW), 0), 1) * (most - least));
}

export const pictures = {
  rate: picture("rate", "Records per second", false),
  quantiles: picture("quantiles", "Quantiles", false),
  heat: picture("heat", "Heat map", true),
};

let shown = null;
let world = null;
let hovered = null;
let choose = {};
let overlaid = () => {};

/** Calls `source(name)` when the user clicks a source in the legend, and `filter(condition)` for a group. */
export function onChoose(given) {
  choose = given;
}

/** Calls `overlaid(box, us)` for other pictures, when the selection or the crosshair moves. */
export function onOverlay(given) {
  overlaid = given;
}

/** Discards the scales, which otherwise stay while data arrive, so that new ones are chosen. */
export function release(...names) {
  for (const name of names) pictures[name].frame.held = null;
}

/** Draws all pictures of an answer, or of the last one again. */
export function draw(answer = shown, known = world) {
  [shown, world] = [answer, known];
  if (!shown || pictures.rate.figure.clientWidth === 0) return;
  const indexed = shown.quantiles !== null || shown.bands !== null;
  pictures.quantiles.figure.hidden = shown.quantiles === null;
  pictures.heat.figure.hidden = !indexed;
  pictures.rate.frame.axis = !indexed;
  const isAlone = !indexed && !state.source.startsWith("metrics/");
  pictures.rate.frame.height = heightOf(isAlone ? "alone" : "rate");
  for (const name of ["quantiles", "heat"]) pictures[name].frame.height = heightOf(name);
  drawRate();
  if (shown.quantiles) drawQuantiles();
  if (shown.bands) drawCategories();
  else if (indexed) drawHeatMap();
  drawOverlays();
}

/** Moves the crosshair: to { us, value }, or away with null. */
export function hover(at) {
  hovered = at;
  if (shown) drawOverlays();
}

function finish({ figure, frame, drawer }, answer, empty) {
  drawer.show(answer.sql);
  frame.note.hidden = !answer.error && !empty;
  frame.note.className = answer.error ? "note bad" : "note";
  frame.note.textContent = answer.error ?? empty ?? "";
  figure.dataset.state = answer.error ? "failed" : empty ? "empty" : "shown";
}

function drawRate() {
  const { span, rate, rates, names, losses } = shown;
  const { frame } = pictures.rate;
  const context = frame.begin(span);
  const grouped = shown.grouped?.of ?? null;
  const series = grouped
    ? grouped.groups.map((group) => ({ points: group.rates, colour: group.colour, wide: false }))
    : names.map((name, at) => ({ points: rates.points(name), colour: seriesColour(at), wide: name === state.source }));
  pictures.rate.heading.textContent = grouped ? `${state.source} per second, by ${state.group}` : "Records per second";
  drawLines(frame, context, { series, width: grouped?.width ?? rates.width, log: false, label: short, losses: losses.rows });
  frame.removed(context, world);
  drawAlerts(frame, context, shown.alerts.rows, shown.pins.rows);
  finish(pictures.rate, shown.grouped ?? rate, rate.rows.length === 0 && !rate.error ? "There are no records in this window." : null);
}

function drawQuantiles() {
  const { span, quantiles, losses } = shown;
  const grouped = shown.grouped?.of ?? null;
  const width = grouped?.width ?? shown.rates.width;
  const { frame, heading } = pictures.quantiles;
  const context = frame.begin(span);
  const starts = quantiles.rows.map(({ bucket }) => bucket);
  const lines = QUANTILES.map(([column]) => ({
    points: quantiles.rows.flatMap((row, at) => [
      ...(at > 0 && row.bucket - starts[at - 1] > width * 1.5 ? [[row.bucket - width, null]] : []),
      [row.bucket, row[column] === null ? null : number(row[column])],
    ]),
    colour: colour(`q-${column}`),
    wide: column === "p99",
  }));
  const series = grouped ? grouped.groups.map((group) => ({ points: group.quantiles, colour: group.colour, wide: false })) : lines;
  const values = series.flatMap(({ points }) => points.map(([, value]) => value)).filter(Number.isFinite);
  const log = values.length > 0 && values.every((value) => value > 0);
  drawLines(frame, context, { series, width, log, label: format(), losses: losses.rows });
  frame.removed(context, world);
  drawAlerts(frame, context, shown.alerts.rows, shown.pins.rows);
  heading.textContent = grouped ? `${state.source} ${state.index}, p99 by ${state.group}` : `${state.source} ${state.index}`;
  finish(pictures.quantiles, shown.grouped ?? quantiles, null);
  shown.quantileOf = (us) => quantiles.rows.find(({ bucket }) => us >= bucket && us < bucket + shown.rates.width);
}

/** An index of labels or codes has a band for each value. */
function drawCategories() {
  const { span, bands, losses } = shown;
  const { frame, heading } = pictures.heat;
  const context = frame.begin(span);
  drawBands(frame, context, bands.of, losses.rows);
  frame.removed(context, world);
  drawAlerts(frame, context, shown.alerts.rows, shown.pins.rows);
  heading.textContent = `${state.source}, records by ${world.field(state.source, state.index)}`;
  finish(pictures.heat, bands, bands.rows.length === 0 && !bands.error ? "The index has no values in this window." : null);
}

function drawHeatMap() {
  const { span, heat, losses } = shown;
  const { frame, heading } = pictures.heat;
  const context = frame.begin(span);
  drawHeat(frame, context, { cells: heat.cells, label: format(), losses: losses.rows });
  frame.removed(context, world);
  drawAlerts(frame, context, shown.alerts.rows, shown.pins.rows);
  heading.textContent = `${state.source} ${state.index}, records by value`;
  finish(pictures.heat, heat, heat.rows.length === 0 && !heat.error ? "The index has no values in this window." : null);
}

const format = () => valueFormat(world.field(state.source, state.index));

export function drawOverlays(box = state.selection) {
  const only = (frame) => (frame === pictures.heat.frame ? box : box && { from: box.from, to: box.to });
  for (const { figure, frame } of Object.values(pictures)) {
    if (!figure.hidden && frame.x) frame.overlay(only(frame), hovered?.us ?? null, frame === pictures.heat.frame ? pointed() : null);
  }
  overlaid(box, hovered?.us ?? null);
  drawLegends();
}

function drawLegends() {
  const us = hovered?.us ?? null;
  const at = us === null ? "" : when(us, places((shown.span.to - shown.span.from) / 300));
  const rates = shown.names.map((name, order) => {
    const value = us === null ? shown.rates.mean(name) : shown.rates.at(name, us);
    const button = make("button", { type: "button", onclick: () => choose.source(name) });
    button.setAttribute("aria-pressed", String(name === state.source));
    button.append(key(seriesColour(order), name, " ", make("b", {}, value === undefined ? "–" : perTime(value))));
    return button;
  });
  replace(pictures.rate.legend, [...(shown.grouped ? groupKeys("rates", us, perTime) : rates), ...lossKey(), ...alertKeys(shown.alerts, shown.pins), at && make("span", {}, at)]);
  const bar = make("i", { className: "ramp" });
  bar.style.background = ramp();
  const scale = make("span", {}, "1", bar, plural(pictures.heat.frame.peak ?? 1));
  if (shown.bands) replace(pictures.heat.legend, [scale, make("span", {}, bandUnder(us, at) || (state.selection ? "" : "drag to read the records behind an area"))]);
  if (shown.quantiles === null) return;
  const row = us === null ? shown.quantiles.rows.at(-1) : shown.quantileOf(us);
  const write = format();
  replace(
    pictures.quantiles.legend,
    shown.grouped ? groupKeys("quantiles", us, write) : QUANTILES.map(([column, name]) => key(colour(`q-${column}`), name, " ", make("b", {}, row ? write(number(row[column])) : "–"))),
  );
  const cell = us === null ? null : cellUnder();
  const read = us === null || hovered.value === null ? "" : `${at}, ${cell ? `${write(cell.lower)} – ${write(cell.upper)}: ${plural(cell.count)}` : write(hovered.value)}`;
  replace(pictures.heat.legend, [scale, make("span", {}, read || (state.selection ? "" : "drag to read the records behind an area"))]);
}

/** The cell or band under the pointer, as the frame draws it. */
function pointed() {
  const { frame } = pictures.heat;
  if (!hovered || hovered.y === null || hovered.y === undefined) return null;
  const at = ({ from, to }, top, bottom, text) => ({ x: frame.x(from), y: top, width: frame.x(to) - frame.x(from), height: Math.max(bottom - top, 3), text });
  if (frame.bands) {
    const band = frame.bands.find(({ top, bottom }) => hovered.y >= top && hovered.y < bottom);
    const from = shown.bands.of.bucketOf(hovered.us);
    const count = band?.group.cells.get(from)?.count ?? 0;
    return count ? at({ from, to: from + shown.bands.of.width }, band.top, band.bottom, `${band.group.name}: ${plural(count)}`) : null;
  }
  const cell = cellUnder();
  return cell ? at({ from: cell.t1, to: cell.t2 }, frame.y(cell.upper), frame.y(cell.lower), `${format()(cell.lower)} – ${format()(cell.upper)}: ${plural(cell.count)}`) : null;
}

const cellUnder = () => shown.heat?.cells.find(({ t1, t2, lower, upper }) => hovered.us >= t1 && hovered.us < t2 && hovered.value >= lower && hovered.value < upper);

/** The groups in a legend, with their value under the pointer, or else their mean rate or newest quantile. */
function groupKeys(points, us, write) {
  const grouped = shown.grouped.of;
  const seconds = (shown.span.to - shown.span.from) / 1e6;
  return grouped.groups.map((group) => {
    const idle = points === "rates" ? group.count / seconds : group.quantiles.findLast(([, value]) => value !== null)?.[1];
    const value = us === null ? idle : grouped.find(group[points], us);
    const condition = groupCondition(grouped, group);
    return make("button", { type: "button", title: `Click to filter: ${condition}`, onclick: () => choose.filter(condition) }, key(group.colour, group.name, " ", make("b", {}, value === undefined || value === null ? "–" : write(value))));
  });
}

/** The band under the pointer, in words. */
function bandUnder(us, at) {
  const { frame } = pictures.heat;
  const band = us === null || hovered.y === null ? null : frame.bands?.find(({ top, bottom }) => hovered.y >= top && hovered.y < bottom);
  if (!band) return at;
  return `${at}, ${band.group.name}: ${plural(band.group.cells.get(shown.bands.of.bucketOf(us))?.count ?? 0)}`;
}

/** Loss entries of the legend: the number of missing records in the window, and of gaps of unknown size. */
function lossKey() {
  const { rows } = shown.losses;
  if (shown.losses.error) return [make("span", {}, `losses unknown: ${shown.losses.error}`)];
  if (rows.length === 0) return [];
  const known = rows.reduce((sum, { records }) => sum + Number(records ?? 0), 0);
  const gaps = rows.filter(({ records }) => records === null).length;
  const words = [known > 0 && `${whole(known)} lost`, gaps > 0 && `${gaps} ${gaps === 1 ? "gap" : "gaps"} of unknown size`].filter(Boolean).join(", ");
  const reasons = [...new Set(rows.map(({ source, stage, reason }) => `${source ?? "all sources"}: ${reason} (${stage})`))].join("\n");
  return [make("span", { title: reasons }, make("i", { className: "hatch" }), make("b", {}, words))];
}

const replace = (element, children) => element.replaceChildren(...children.filter(Boolean));

function picture(id, title, axis) {
  const figure = document.getElementById(id);
  const frame = new Frame(figure, axis);
  const drawer = new SqlDrawer();
  const heading = make("h2", {}, title);
  const legend = make("div", { className: "legend" });
  frame.head.append(heading, legend, drawer.button);
  frame.head.after(drawer.drawer);
  return { figure, frame, drawer, heading, legend };
}
