// The page: chooses what to ask, asks every two seconds while it follows, and draws all pictures at once.

import { about, query } from "./api.js";
import { key, make, SqlDrawer } from "./dom.js";
import { clock, day, places, short, valueFormat, whole, zoneName } from "./format.js";
import { colour, Frame } from "./frame.js";
import { drawHeat, ramp } from "./heat.js";
import { bucketWidth, drawLines, seriesColour } from "./lines.js";
import { evicted, Selection } from "./selection.js";
import * as sql from "./sql.js";
import { readAddress, state, writeAddress } from "./state.js";
import { startTheme } from "./theme.js";
import { daemon, look } from "./world.js";

const REFRESH_MS = 2000;
const WINDOWS = [[60, "1 min"], [300, "5 min"], [3600, "1 h"], [0, "All"]];
const QUANTILES = [["p50", "p50"], ["p99", "p99"], ["p99_9", "p99.9"], ["max", "max"]];
const SPAN_MIN_US = 1000;

const by = (id) => document.getElementById(id);
const pictures = {
  rate: picture(by("rate"), "Records per second", 168, false),
  quantiles: picture(by("quantiles"), "Quantiles", 188, false),
  heat: picture(by("heat"), "Heat map", 310, true),
};
const selection = new Selection(by("selection"), { clear: clearSelection, zoom: zoomToSelection, list: listSource });

let world = null;
let drawn = null; // what the pictures show: { span, rate, quantiles, heat, losses }
let hovered = null;
let brushing = false;
let asked = null;
let timer = null;
let refreshes = 0;

function picture(figure, title, height, axis) {
  const frame = new Frame(figure, height, axis);
  const drawer = new SqlDrawer();
  const heading = make("h2", {}, title);
  const legend = make("div", { className: "legend" });
  frame.head.append(heading, legend, drawer.button);
  frame.head.after(drawer.drawer);
  return { figure, frame, drawer, heading, legend };
}

// ---- asking

function following() {
  return state.span === null;
}

function windowOf() {
  if (state.span) return state.span;
  const { from, to } = world.span;
  return { from: state.last === 0 ? Math.min(from, to - SPAN_MIN_US) : to - state.last * 1e6, to };
}

/** Fills in what the state leaves open, and corrects what the directory does not have. */
function settle() {
  const names = world.sources.map(({ name }) => name);
  if (!names.includes(state.source)) {
    state.source = world.indexes.find(({ source }) => names.includes(source))?.source ?? names[0] ?? null;
    state.index = null;
  }
  const own = world.indexes.filter(({ source }) => source === state.source).map(({ index }) => index);
  if (!own.includes(state.index)) state.index = own[0] ?? null;
  if (state.rows !== null && !names.includes(state.rows)) state.rows = null;
}

async function ask(text, signal) {
  try {
    return { sql: text, ...(await query(text, signal)) };
  } catch (error) {
    if (signal.aborted) throw error;
    return { sql: text, rows: [], error: error.message };
  }
}

/** Asks for everything and draws it. A later call gives up an earlier one; a drag of the pointer outlives both. */
async function refresh() {
  clearTimeout(timer);
  asked?.abort();
  const { signal } = (asked = new AbortController());
  const began = performance.now();
  try {
    const seen = await look(state.dir, signal);
    seen.usual = world?.usual ?? seen.usual;
    world = seen;
    settle();
    if (world.span === null) showEmpty();
    else showOnly("main");
    if (world.span !== null && (following() || drawn === null || drawn.key !== pictureKey())) await askPictures(signal);
    showHeader();
  } catch (error) {
    if (signal.aborted) return;
    showUnreadable(error.message);
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
  const [rate, losses, quantiles, heat] = await Promise.all([
    ask(sql.rate(dir, names, span), signal),
    ask(sql.losses(dir, span), signal),
    index === null ? null : ask(sql.quantiles(dir, source, index, span), signal),
    index === null ? null : ask(sql.heat(dir, source, index, span), signal),
  ]);
  if (brushing) return;
  drawn = { key, span, names, rate, losses, quantiles, heat };
  const width = bucketWidth(rate.rows.map(({ bucket }) => bucket)) / 1e6;
  const seconds = width * new Set(rate.rows.map(({ bucket }) => bucket)).size;
  world.usual = new Map(names.map((name) => [name, rate.rows.reduce((sum, row) => sum + (row.source === name ? row.count : 0), 0) / (seconds || 1)]));
  draw();
}

// ---- drawing

function draw() {
  if (!drawn || by("main").hidden) return;
  const indexed = drawn.quantiles !== null;
  for (const { figure } of [pictures.quantiles, pictures.heat]) figure.hidden = !indexed;
  by("hint").textContent = indexed ? "Drag over the heat map to read the records behind it" : "";
  pictures.rate.frame.axis = !indexed;
  pictures.rate.frame.height = indexed ? 168 : 290;
  drawRate();
  if (indexed) drawQuantiles(), drawHeatMap();
  drawOverlays();
}

function finish({ figure, frame, drawer }, answer, empty) {
  drawer.show(answer.sql);
  frame.note.hidden = !answer.error && !empty;
  frame.note.className = answer.error ? "note bad" : "note";
  frame.note.textContent = answer.error ?? empty ?? "";
  figure.dataset.state = answer.error ? "failed" : empty ? "empty" : "shown";
}

function drawRate() {
  const { span, rate, names, losses } = drawn;
  const { frame } = pictures.rate;
  const context = frame.begin(span);
  const starts = [...new Set(rate.rows.map(({ bucket }) => bucket))].sort((a, b) => a - b);
  const width = bucketWidth(starts);
  const grid = starts.length ? Array.from({ length: Math.min(Math.round((starts.at(-1) - starts[0]) / width) + 1, 2000) }, (_, at) => starts[0] + at * width) : [];
  const bySource = new Map(names.map((name) => [name, new Map()]));
  for (const row of rate.rows) bySource.get(row.source)?.set(row.bucket, row.per_second);
  drawn.rateOf = (name, us) => bySource.get(name)?.get(Math.floor((us - (starts[0] ?? 0)) / width) * width + (starts[0] ?? 0));
  const series = names.map((name, at) => ({
    points: grid.map((bucket) => [bucket, bySource.get(name).get(bucket) ?? 0]),
    colour: seriesColour(at),
    wide: name === state.source,
  }));
  drawLines(frame, context, { series, width, log: false, label: short, losses: losses.rows });
  finish(pictures.rate, rate, rate.rows.length === 0 && !rate.error ? "No record lies in this window." : null);
}

function drawQuantiles() {
  const { span, quantiles, losses } = drawn;
  const { frame, heading } = pictures.quantiles;
  const context = frame.begin(span);
  const starts = quantiles.rows.map(({ bucket }) => bucket);
  const width = bucketWidth(starts);
  const series = QUANTILES.map(([column]) => ({
    points: quantiles.rows.flatMap((row, at) => [
      ...(at > 0 && row.bucket - starts[at - 1] > width * 1.5 ? [[row.bucket - width, null]] : []),
      [row.bucket, row[column] === null ? null : Number(row[column])],
    ]),
    colour: colour(`q-${column}`),
    wide: column === "p99",
  }));
  const values = series.flatMap(({ points }) => points.map(([, value]) => value)).filter((value) => value !== null);
  const log = values.length > 0 && values.every((value) => value > 0);
  drawLines(frame, context, { series, width, log, label: format(), losses: losses.rows });
  heading.textContent = `${state.source} ${state.index}`;
  finish(pictures.quantiles, quantiles, null);
  drawn.quantileOf = (us) => quantiles.rows.find(({ bucket }) => us >= bucket && us < bucket + width);
}

function drawHeatMap() {
  const { span, heat, losses } = drawn;
  const { frame, heading } = pictures.heat;
  const context = frame.begin(span);
  drawHeat(frame, context, { cells: heat.rows, label: format(), losses: losses.rows });
  heading.textContent = `${state.source} ${state.index}, records by value`;
  finish(pictures.heat, heat, heat.rows.length === 0 && !heat.error ? "The index has no value in this window." : null);
}

const format = () => valueFormat(world.field(state.source, state.index));

function drawOverlays(box = state.selection) {
  const only = (frame) => (frame === pictures.heat.frame ? box : box && { from: box.from, to: box.to });
  for (const { figure, frame } of Object.values(pictures)) if (!figure.hidden && frame.x) frame.overlay(only(frame), hovered?.us ?? null);
  drawLegends();
}

function drawLegends() {
  const us = hovered?.us ?? null;
  const at = us === null ? "" : clock(us, places((drawn.span.to - drawn.span.from) / 300));
  const rates = drawn.names.map((name, order) => {
    const value = us === null ? world.usual.get(name) : drawn.rateOf(name, us);
    const button = make("button", { type: "button", onclick: () => chooseSource(name) });
    button.setAttribute("aria-pressed", String(name === state.source));
    button.append(key(seriesColour(order), name, " ", make("b", {}, value === undefined ? "–" : `${short(value)}/s`)));
    return button;
  });
  replace(pictures.rate.legend, [...rates, ...lossKey(), at && make("span", {}, at)]);
  if (drawn.quantiles === null) return;
  const row = us === null ? drawn.quantiles.rows.at(-1) : drawn.quantileOf(us);
  const write = format();
  replace(
    pictures.quantiles.legend,
    QUANTILES.map(([column, name]) => key(colour(`q-${column}`), name, " ", make("b", {}, row ? write(Number(row[column])) : "–"))),
  );
  const bar = make("i", { className: "ramp" });
  bar.style.background = ramp();
  const cell = us === null ? null : drawn.heat.rows.find(({ t1, t2, lower, upper }) => us >= t1 && us < t2 && hovered.value >= lower && hovered.value < upper);
  const read = us === null || hovered.value === null ? "" : `${at}, ${cell ? `${write(cell.lower)} – ${write(cell.upper)}: ${whole(cell.count)} records` : write(hovered.value)}`;
  replace(pictures.heat.legend, [make("span", {}, "1", bar, `${whole(pictures.heat.frame.peak ?? 1)} records`), read && make("span", {}, read)]);
}

/** Loss entries of the legend: how many records are known to be missing in the window, and how many gaps of unknown size. */
function lossKey() {
  const { rows } = drawn.losses;
  if (drawn.losses.error) return [make("span", {}, `losses unknown: ${drawn.losses.error}`)];
  if (rows.length === 0) return [];
  const known = rows.reduce((sum, { records }) => sum + Number(records ?? 0), 0);
  const gaps = rows.filter(({ records }) => records === null).length;
  const words = [known > 0 && `${whole(known)} lost`, gaps > 0 && `${gaps} ${gaps === 1 ? "gap" : "gaps"} of unknown size`].filter(Boolean).join(", ");
  const reasons = [...new Set(rows.map(({ source, stage, reason }) => `${source ?? "all sources"}: ${reason} (${stage})`))].join("\n");
  return [make("span", { title: reasons }, make("i", { className: "hatch" }), make("b", {}, words))];
}

const replace = (element, children) => element.replaceChildren(...children.filter(Boolean));

// ---- states

function showHeader() {
  const mark = daemon(world);
  Object.assign(by("daemon"), { textContent: mark.text }).dataset.state = mark.state;
  for (const button of by("window").children) button.setAttribute("aria-pressed", String(following() && Number(button.dataset.last) === state.last));
  by("live").textContent = following() ? (world.alive ? "● Live" : "● Following") : "▶ Go live";
  by("live").dataset.on = String(following() && world.alive);
  by("zone").textContent = zoneName();
  options(by("source"), world.sources.map(({ name }) => [name, name]), state.source);
  const own = world.indexes.filter(({ source }) => source === state.source);
  options(by("index"), own.map(({ index, value, filter }) => [index, `${index}${value === index ? "" : ` (${value}${filter ? ` where ${filter}` : ""})`}`]), state.index);
  by("index-label").hidden = own.length === 0;
  by("hint").textContent ||= own.length === 0 && state.source ? `No index on ${state.source}. Add one: ingestd index add ${state.dir} --source ${state.source} --index NAME --value FIELD` : "";
  const gone = state.span && world.span ? evicted(world, state.span) : null;
  by("notice").hidden = gone === null;
  by("notice").textContent = { all: `Retention has removed this window. The oldest record is from ${clock(world.oldest ?? 0, 3)}, ${day(world.oldest ?? 0)}.`, part: `Retention has removed the records of this window before ${clock(world.oldest ?? 0, 3)}, ${day(world.oldest ?? 0)}.` }[gone] ?? "";
  document.title = `${state.source ?? "Loom"} · ${state.dir.split("/").at(-1)}`;
  document.documentElement.dataset.daemon = mark.state;
}

function options(select, pairs, chosen) {
  const wanted = JSON.stringify(pairs);
  if (select.dataset.pairs !== wanted) {
    select.dataset.pairs = wanted;
    select.replaceChildren(...pairs.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen ?? "";
}

function showOnly(id) {
  for (const each of ["main", "empty"]) by(each).hidden = each !== id;
}

function showEmpty() {
  showOnly("empty");
  const dir = state.dir;
  const start = world.alive ? [] : [make("p", {}, "Start a daemon:"), make("pre", {}, `ingestd run ${dir}`)];
  by("empty").replaceChildren(
    make("h1", {}, "No records yet"),
    make("p", {}, world.sources.length ? `Sources: ${world.sources.map(({ name }) => name).join(", ")}. The pictures appear with the first record.` : "The directory has no source. The pictures appear with the first record."),
    ...start,
    make("p", {}, "Load a file, or push from a program:"),
    make("pre", {}, `ingestd load ${dir} --source NAME FILE`),
  );
}

function showUnreadable(message) {
  showOnly("empty");
  by("empty").replaceChildren(make("h1", {}, "Cannot read the directory"), make("p", {}, message), make("p", {}, "The page tries again every two seconds."));
  Object.assign(by("daemon"), { textContent: "" }).dataset.state = "";
  drawn = null;
}

// ---- choosing

function change(changes) {
  Object.assign(state, changes);
  writeAddress();
  selection.show(world);
  if (!changes.keepPictures) refresh();
}

function chooseSource(source) {
  for (const { frame } of [pictures.quantiles, pictures.heat]) frame.held = null;
  change({ source, index: null, selection: null, rows: null });
}

function chooseWindow(last) {
  for (const { frame } of Object.values(pictures)) frame.held = null;
  change({ last, span: null, selection: null, rows: null });
}

function clearSelection() {
  if (state.selection === null && state.span === null) return;
  change({ selection: null, rows: null, span: state.zoomed ? state.span : null });
}

function zoomToSelection() {
  const { from, to } = state.selection;
  state.zoomed = true;
  change({ span: { from, to: Math.max(to, from + SPAN_MIN_US) } });
}

function listSource(source) {
  state.rows = source === state.source ? null : source;
  writeAddress();
  selection.show(world);
}

/** The times and values of a box in pixels, rounded to what a pixel can tell. */
function chosenBy(frame, { x, y }, values) {
  const round = (value, step) => Math.round(value / step) * step;
  const perPixel = (drawn.span.to - drawn.span.from) / (frame.right - 66);
  const step = 10 ** Math.max(Math.floor(Math.log10(perPixel)), 0);
  const from = round(frame.x.invert(x[0]), step);
  const box = { from, to: Math.max(round(frame.x.invert(x[1]), step), from + step) };
  if (!values) return box;
  const exact = (value) => Number(value.toPrecision(3));
  return { ...box, index: state.index, vMin: exact(frame.y.invert(y[1])), vMax: exact(frame.y.invert(y[0])) };
}

function start() {
  for (const [name, { figure, frame }] of Object.entries(pictures)) {
    const values = name === "heat";
    frame.listen({
      hover(us, y) {
        hovered = us === null ? null : { us, value: values && y !== null ? frame.y.invert(y) : null };
        if (drawn && !brushing) drawOverlays();
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
  by("live").addEventListener("click", () => (following() ? change({ span: drawn?.span ?? null }) : ((state.zoomed = false), change({ span: null, selection: null, rows: null }))));
  by("source").addEventListener("change", (event) => chooseSource(event.target.value));
  by("index").addEventListener("change", (event) => {
    for (const { frame } of [pictures.quantiles, pictures.heat]) frame.held = null;
    change({ index: event.target.value, selection: null, rows: null });
  });
  by("dir").addEventListener("change", (event) => {
    drawn = world = null;
    Object.assign(state, { dir: event.target.value, source: null, index: null, span: null, selection: null, rows: null });
    writeAddress();
    by("selection").hidden = true;
    refresh();
  });
  by("zone").addEventListener("click", () => {
    state.utc = !state.utc;
    writeAddress();
    showHeader();
    draw();
    selection.show(world);
  });
  startTheme(by("theme"), draw);
  addEventListener("resize", draw);
  addEventListener("hashchange", restore);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") clearSelection();
  });
}

/** Shows what the address says. */
async function restore() {
  readAddress();
  if (state.dir === null || ![...by("dir").options].some(({ value }) => value === state.dir)) state.dir = by("dir").options[0].value;
  by("dir").value = state.dir;
  state.zoomed = state.span !== null && state.selection === null;
  drawn = null;
  await refresh();
  if (world) selection.show(world);
}

async function main() {
  const { directories } = await about();
  by("dir").append(...directories.map((dir) => make("option", { value: dir }, dir)));
  if (directories.length === 1) by("dir").dataset.one = "";
  by("dir").disabled = directories.length === 1;
  start();
  await restore();
}

main().catch((error) => showUnreadable(error.message));
