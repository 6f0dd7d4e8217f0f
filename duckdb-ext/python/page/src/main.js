// The page: it decides what to query, queries every two seconds while it follows, and draws all pictures at once.

import { Alerts } from "./alerts.js";
import { about, number, query, Unreachable } from "./api.js";
import { notify, showEmpty, showHeader, showOnly, showUnreadable } from "./around.js";
import { make } from "./dom.js";
import { MARGIN } from "./frame.js";
import { draw, drawOverlays, hover, onChoose, pictures, release } from "./pictures.js";
import { ratesOf } from "./rates.js";
import { Selection } from "./selection.js";
import * as sql from "./sql.js";
import { following, readAddress, state, writeAddress } from "./state.js";
import { startTheme } from "./theme.js";
import { look } from "./world.js";

const REFRESH_MS = 2000;
const WINDOWS = [[60, "1 min"], [300, "5 min"], [3600, "1 h"], [0, "All"]];
const SPAN_MIN_US = 1000;
const ALL_MIN_US = 1e6;
/** A selection that is a larger part of the window is not compared with it. */
const PART_MOST = 0.5;

const by = (id) => document.getElementById(id);
const selection = new Selection(by("selection"), { clear: clearSelection, zoom: zoomToSelection, list: listSource, usual: usualRates });

const table = new Alerts(by("alerts"));

let world = null;
let drawn = null; // the answers that the pictures show, with the key of their queries
let misled = null; // a message about names in the address that do not exist
let brushing = false;
let asked = null;
let timer = null;
let refreshes = 0;

// ---- querying

function windowOf() {
  if (state.span) return state.span;
  const { from, to, newest } = world.span;
  if (state.last === 0) return { from: Math.min(from, to - ALL_MIN_US), to };
  return { from: newest - state.last * 1e6, to: newest };
}

/** Completes the state, and replaces names that the directory does not have; a selection in these is dropped. */
function settle() {
  const names = world.sources.map(({ name }) => name);
  if (!names.includes(state.source)) {
    if (state.source !== null) mislead(`The source '${state.source}' is not in this directory.`);
    state.source = world.indexes.find(({ source }) => names.includes(source))?.source ?? names[0] ?? null;
    state.index = null;
  }
  const own = world.indexes.filter(({ source }) => source === state.source).map(({ index }) => index);
  if (!own.includes(state.index)) {
    if (state.index !== null) mislead(`The source '${state.source}' has no open index '${state.index}'.`);
    state.index = own[0] ?? null;
  }
  if (state.rows !== null && !names.includes(state.rows)) state.rows = null;
}

/** Reports that a name in the address does not exist, and drops the selection in it. */
function mislead(what) {
  misled = `${what} The page shows an existing one instead.`;
  Object.assign(state, { selection: null, rows: null, span: state.zoomed ? state.span : null });
}

async function ask(text, signal) {
  try {
    return { sql: text, ...(await query(text, signal)) };
  } catch (error) {
    if (signal.aborted || error instanceof Unreachable) throw error;
    return { sql: text, rows: [], error: error.message };
  }
}

/** Queries and draws everything. A later call cancels an earlier one; a drag of the pointer continues. */
async function refresh() {
  clearTimeout(timer);
  asked?.abort();
  const { signal } = (asked = new AbortController());
  const began = performance.now();
  try {
    world = await look(state.dir, signal);
    settle();
    if (world.span === null) showEmpty(world);
    else showOnly("main");
    if (world.span !== null && (following() || drawn === null || drawn.key !== pictureKey())) await askPictures(signal);
    showHeader(world, misled);
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Unreachable && drawn !== null) notify("The explorer does not respond, so the pictures do not change. Start it again; the page then continues.");
    else if (error instanceof Unreachable) showUnreadable("the explorer does not respond; start it again", false);
    else {
      drawn = null;
      showUnreadable(error.message);
    }
  }
  document.documentElement.dataset.refreshes = String(++refreshes);
  if (!signal.aborted) timer = setTimeout(tick, Math.max(REFRESH_MS - (performance.now() - began), 250));
}

function tick() {
  if (brushing || document.hidden) timer = setTimeout(tick, 250);
  else refresh();
}

const pictureKey = () => JSON.stringify([state.dir, state.source, state.index, state.span]);

async function askPictures(signal) {
  const { dir, source, index } = state;
  const span = windowOf();
  const key = pictureKey();
  const names = world.sources.filter(({ first_ts }) => first_ts !== null).map(({ name }) => name);
  const none = { sql: "", rows: [] };
  const [rate, losses, alerts, pins, quantiles, heat] = await Promise.all([
    ask(sql.rate(dir, names, span, world.alive), signal),
    ask(sql.losses(dir, span), signal),
    world.alerts ? ask(sql.alerts(dir, span), signal) : none,
    world.alerts ? ask(sql.pins(dir, span), signal) : none,
    index === null ? null : ask(sql.quantiles(dir, source, index, span, world.alive), signal),
    index === null ? null : ask(sql.heat(dir, source, index, span, world.alive), signal),
  ]);
  if (brushing) return;
  if (heat) heat.cells = heat.rows.map((cell) => ({ ...cell, lower: number(cell.lower), upper: number(cell.upper) }));
  const rates = ratesOf({ rows: rate.rows, span, held: world.span, live: world.alive });
  drawn = { key, span, names, rate, rates, losses, alerts, pins, quantiles, heat };
  draw(drawn, world);
  table.show(alerts, pins);
}

/** The rates of the shown window, if the selection is a small part of it; otherwise 0. */
function usualRates({ from, to }) {
  const isPart = drawn !== null && to - from < PART_MOST * (drawn.span.to - drawn.span.from);
  return (name) => (isPart ? drawn.rates.mean(name) : 0);
}

// ---- choosing

function change(changes) {
  const step = ["dir", "source", "index", "span", "last"].some((name) => name in changes && JSON.stringify(changes[name]) !== JSON.stringify(state[name]));
  Object.assign(state, changes);
  misled = null;
  writeAddress(step);
  selection.show(world);
  refresh();
}

function chooseSource(source) {
  release("quantiles", "heat");
  change({ source, index: null, selection: null, rows: null });
}

function chooseWindow(last) {
  release("rate", "quantiles", "heat");
  change({ last, span: null, selection: null, rows: null, zoomed: false });
}

function clearSelection() {
  if (state.selection === null && state.span === null) return;
  change({ selection: null, rows: null, span: state.zoomed ? state.span : null });
}

function zoomToSelection() {
  const { from, to } = state.selection;
  change({ span: { from, to: Math.max(to, from + SPAN_MIN_US) }, zoomed: true });
}

function listSource(source) {
  state.rows = source === state.source ? null : source;
  writeAddress();
  selection.show(world);
}

/** The times and values of a box in pixels, rounded to the precision of a pixel. */
function chosenBy(frame, { x, y }, values) {
  const round = (value, step) => Math.round(value / step) * step;
  const perPixel = (drawn.span.to - drawn.span.from) / (frame.right - MARGIN.left);
  const step = 10 ** Math.max(Math.floor(Math.log10(perPixel)), 0);
  const from = round(frame.x.invert(x[0]), step);
  const box = { from, to: Math.max(round(frame.x.invert(x[1]), step), from + step) };
  if (!values) return box;
  // Bounds are rounded outward, and an edge of the picture is no bound, so the box contains everything that it covers.
  const vMin = y[1] >= frame.bottom ? null : rounded(frame.y.invert(y[1]), Math.floor);
  const vMax = y[0] <= MARGIN.top ? null : rounded(frame.y.invert(y[0]), Math.ceil);
  return { ...box, index: state.index, vMin, vMax };
}

/** Rounds to three digits, down or up. */
function rounded(value, round) {
  if (value === 0) return 0;
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 2);
  return Number((round(value / step) * step).toPrecision(3));
}

function start() {
  onChoose(chooseSource);
  for (const [name, { figure, frame }] of Object.entries(pictures)) {
    const values = name === "heat";
    frame.listen({
      hover(us, y) {
        if (!brushing) hover(us === null ? null : { us, value: values && y !== null ? frame.y.invert(y) : null });
      },
      brush(box, done) {
        brushing = !done;
        figure.dataset.brushing = String(brushing);
        const chosen = chosenBy(frame, box, values);
        if (!done) return drawOverlays(chosen);
        state.span ??= drawn.span;
        drawn.key = JSON.stringify([state.dir, state.source, state.index, state.span]);
        change({ selection: chosen, rows: null });
      },
      click() {
        brushing = false;
        if (state.selection) clearSelection();
      },
    });
  }
  by("window").append(...WINDOWS.map(([last, text]) => Object.assign(make("button", { type: "button", onclick: () => chooseWindow(last) }, text))));
  WINDOWS.forEach(([last], at) => (by("window").children[at].dataset.last = last));
  by("live").addEventListener("click", () => (following() ? change({ span: drawn?.span ?? null }) : change({ span: null, selection: null, rows: null, zoomed: false })));
  by("source").addEventListener("change", (event) => chooseSource(event.target.value));
  by("index").addEventListener("change", (event) => {
    release("quantiles", "heat");
    change({ index: event.target.value, selection: null, rows: null });
  });
  by("dir").addEventListener("change", (event) => {
    drawn = world = null;
    change({ dir: event.target.value, source: null, index: null, span: null, selection: null, rows: null });
  });
  by("zone").addEventListener("click", () => {
    state.utc = !state.utc;
    writeAddress();
    if (world) showHeader(world, misled);
    draw();
    selection.show(world);
  });
  startTheme(by("theme"), () => draw());
  addEventListener("resize", () => draw());
  addEventListener("hashchange", restore);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") clearSelection();
  });
}

/** Shows the state of the address. */
async function restore() {
  readAddress();
  misled = null;
  const [first, ...others] = [...by("dir").options].map(({ value }) => value);
  state.dir ??= first;
  if (![first, ...others].includes(state.dir)) {
    mislead(`The explorer was not given the directory ${state.dir}.`);
    Object.assign(state, { dir: first, source: null, index: null });
  }
  by("dir").value = state.dir;
  drawn = null;
  await refresh();
  if (world) selection.show(world);
}

async function main() {
  const { directories } = await about();
  // A directory is shown by its name, unless two share it.
  const name = (dir) => dir.split("/").at(-1);
  const names = new Map(directories.map((dir) => [dir, directories.filter((other) => name(other) === name(dir)).length > 1 ? dir : name(dir)]));
  by("dir").append(...directories.map((dir) => make("option", { value: dir, title: dir }, names.get(dir))));
  if (directories.length === 1) by("dir").dataset.one = "";
  by("dir").disabled = directories.length === 1;
  by("dir").title = directories.length === 1 ? directories[0] : "Loom directory";
  start();
  await restore();
}

main().catch((error) => showUnreadable(error.message, false));
