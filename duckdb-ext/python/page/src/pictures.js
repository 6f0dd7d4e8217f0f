// The three pictures: the rates of all sources, the quantiles of an index and its heat map, with their legends and SQL.
//
// `shown` has the answers: { span, names, rate, rates, losses, alerts, pins, quantiles, heat }; the last two are null if the source has no index.

import { alertKeys, drawAlerts } from "./alerts.js";
import { key, make, SqlDrawer } from "./dom.js";
import { perTime, places, plural, short, valueFormat, when, whole } from "./format.js";
import { colour, Frame } from "./frame.js";
import { drawHeat, ramp } from "./heat.js";
import { drawLines, seriesColour } from "./lines.js";
import { number } from "./api.js";
import { state } from "./state.js";

const QUANTILES = [["p50", "p50"], ["p99", "p99"], ["p99_9", "p99.9"], ["max", "max"]];
const RATE_HEIGHT = 136;
const RATE_HEIGHT_ALONE = 290;

export const pictures = {
  rate: picture("rate", "Records per second", RATE_HEIGHT, false),
  quantiles: picture("quantiles", "Quantiles", 156, false),
  heat: picture("heat", "Heat map", 272, true),
};

let shown = null;
let world = null;
let hovered = null;
let choose = () => {};

/** Calls `choose(source)` when the user clicks a source in the legend. */
export function onChoose(given) {
  choose = given;
}

/** Discards the scales, which otherwise stay while data arrive, so that new ones are chosen. */
export function release(...names) {
  for (const name of names) pictures[name].frame.held = null;
}

/** Draws all pictures of an answer, or of the last one again. */
export function draw(answer = shown, known = world) {
  [shown, world] = [answer, known];
  if (!shown || pictures.rate.figure.clientWidth === 0) return;
  const indexed = shown.quantiles !== null;
  for (const { figure } of [pictures.quantiles, pictures.heat]) figure.hidden = !indexed;
  pictures.rate.frame.axis = !indexed;
  pictures.rate.frame.height = indexed ? RATE_HEIGHT : RATE_HEIGHT_ALONE;
  drawRate();
  if (indexed) drawQuantiles(), drawHeatMap();
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
  const series = names.map((name, at) => ({ points: rates.points(name), colour: seriesColour(at), wide: name === state.source }));
  drawLines(frame, context, { series, width: rates.width, log: false, label: short, losses: losses.rows });
  frame.removed(context, world);
  drawAlerts(frame, context, shown.alerts.rows, shown.pins.rows);
  finish(pictures.rate, rate, rate.rows.length === 0 && !rate.error ? "There are no records in this window." : null);
}

function drawQuantiles() {
  const { span, quantiles, losses } = shown;
  const { width } = shown.rates;
  const { frame, heading } = pictures.quantiles;
  const context = frame.begin(span);
  const starts = quantiles.rows.map(({ bucket }) => bucket);
  const series = QUANTILES.map(([column]) => ({
    points: quantiles.rows.flatMap((row, at) => [
      ...(at > 0 && row.bucket - starts[at - 1] > width * 1.5 ? [[row.bucket - width, null]] : []),
      [row.bucket, row[column] === null ? null : number(row[column])],
    ]),
    colour: colour(`q-${column}`),
    wide: column === "p99",
  }));
  const values = series.flatMap(({ points }) => points.map(([, value]) => value)).filter(Number.isFinite);
  const log = values.length > 0 && values.every((value) => value > 0);
  drawLines(frame, context, { series, width, log, label: format(), losses: losses.rows });
  frame.removed(context, world);
  drawAlerts(frame, context, shown.alerts.rows, shown.pins.rows);
  heading.textContent = `${state.source} ${state.index}`;
  finish(pictures.quantiles, quantiles, null);
  shown.quantileOf = (us) => quantiles.rows.find(({ bucket }) => us >= bucket && us < bucket + width);
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
  for (const { figure, frame } of Object.values(pictures)) if (!figure.hidden && frame.x) frame.overlay(only(frame), hovered?.us ?? null);
  drawLegends();
}

function drawLegends() {
  const us = hovered?.us ?? null;
  const at = us === null ? "" : when(us, places((shown.span.to - shown.span.from) / 300));
  const rates = shown.names.map((name, order) => {
    const value = us === null ? shown.rates.mean(name) : shown.rates.at(name, us);
    const button = make("button", { type: "button", onclick: () => choose(name) });
    button.setAttribute("aria-pressed", String(name === state.source));
    button.append(key(seriesColour(order), name, " ", make("b", {}, value === undefined ? "–" : perTime(value))));
    return button;
  });
  replace(pictures.rate.legend, [...rates, ...lossKey(), ...alertKeys(shown.alerts, shown.pins), at && make("span", {}, at)]);
  if (shown.quantiles === null) return;
  const row = us === null ? shown.quantiles.rows.at(-1) : shown.quantileOf(us);
  const write = format();
  replace(
    pictures.quantiles.legend,
    QUANTILES.map(([column, name]) => key(colour(`q-${column}`), name, " ", make("b", {}, row ? write(number(row[column])) : "–"))),
  );
  const bar = make("i", { className: "ramp" });
  bar.style.background = ramp();
  const cell = us === null ? null : shown.heat.cells.find(({ t1, t2, lower, upper }) => us >= t1 && us < t2 && hovered.value >= lower && hovered.value < upper);
  const read = us === null || hovered.value === null ? "" : `${at}, ${cell ? `${write(cell.lower)} – ${write(cell.upper)}: ${plural(cell.count)}` : write(hovered.value)}`;
  replace(pictures.heat.legend, [make("span", {}, "1", bar, plural(pictures.heat.frame.peak ?? 1)), make("span", {}, read || (state.selection ? "" : "drag to read the records behind an area"))]);
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

function picture(id, title, height, axis) {
  const figure = document.getElementById(id);
  const frame = new Frame(figure, height, axis);
  const drawer = new SqlDrawer();
  const heading = make("h2", {}, title);
  const legend = make("div", { className: "legend" });
  frame.head.append(heading, legend, drawer.button);
  frame.head.after(drawer.drawer);
  return { figure, frame, drawer, heading, legend };
}
