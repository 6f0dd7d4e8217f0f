// The page: it decides what to query, queries every two seconds while it follows, and draws all pictures at once.

import { Alerts } from "./alerts.js";
import { about, number, query, Unreachable } from "./api.js";
import { notify, showEmpty, showHeader, showOnly, showUnreadable } from "./around.js";
import { make } from "./dom.js";
import { fieldsOf, valuesOf } from "./fields.js";
import { FilterBox } from "./filter.js";
import { Near } from "./near.js";
import { isSeries, Metrics } from "./metrics.js";
import { Chooser, isOffered, labelOf, nameOf, windowBeside } from "./compare.js";
import { listenToKeys } from "./keys.js";
import { conditionOf, groupsOf, widthOf } from "./groups.js";
import { MARGIN } from "./frame.js";
import { Pictures } from "./pictures.js";
import { ratesOf } from "./rates.js";
import { hasColumn, Selection } from "./selection.js";
import * as sql from "./sql.js";
import { following, readAddress, state, writeAddress } from "./state.js";
import { startTheme } from "./theme.js";
import { look } from "./world.js";

const REFRESH_MS = 2000;
/** An interaction uses what is known of the directory for this long. */
const KNOWN_MS = 2 * REFRESH_MS;
const WINDOWS = [[60, "1 min"], [300, "5 min"], [3600, "1 h"], [0, "All"]];
const SPAN_MIN_US = 1000;
const ALL_MIN_US = 1e6;
/** A selection that is a larger part of the window is not compared with it. */
const PART_MOST = 0.5;

const by = (id) => document.getElementById(id);
const selection = new Selection(by("selection"), { clear: clearSelection, zoom: zoomToSelection, list: listSource, sort: sortRows, open: openRow, filter: (condition) => filterBox.add(condition), usual: usualRates, mayKeep: (dir) => pinned.includes(dir), kept: keptMore });

const near = new Near(by("near"), {
  close: () => state.at && (setAt(null), showNear()),
  width: (width) => (Object.assign(state, { width }), writeAddress(), showNear()),
  side: (side) => (setAt({ ...state.at, side }), showNear()),
});
const table = new Alerts(by("alerts"));

const filterBox = new FilterBox(by("filter"), {
  // The source may change before the answer comes.
  async check(filter) {
    const key = filterKey(filter);
    await query(sql.check(state.dir, state.source, filter));
    checked.add(key);
  },
  apply: (filter) => change({ filter }),
  values: (name) => valuesOf(state.dir, state.source, fields.find((field) => field.name === name)),
});

const metrics = new Metrics(by("metrics"), {
  hover: (us) => brushing || pictures.hover(us === null ? null : { us, y: null }),
  brush: (box, done, frame) => brushed(frame, null, box, done),
  click: clicked,
  changed: (changes) => change(changes),
});
const choices = { source: chooseSource, filter: (condition) => filterBox.add(condition) };
const pictures = new Pictures({ rate: "rate", quantiles: "quantiles", heat: "heat" }, choices, (box, us) => metrics.overlay(box, us));
/** The pictures of the window to compare with. */
const beside = new Pictures({ rate: "rate-beside", quantiles: "quantiles-beside", heat: "heat-beside" }, choices, () => {});
beside.follow(pictures);

let names = new Map(); // of the directories that the server reads
let chooser = null;
let pinned = []; // the directories whose records the server may pin
let world = null;
let looked = 0; // when `world` was queried
let due = 0; // when it is queried again
let fields = []; // of the chosen source
let drawn = null; // the answers that the pictures show, with the key of their queries
let answers = new Map(); // those that the pictures show, by their SQL
let answered = 0; // when the oldest of them was queried
const checked = new Set(); // the filters that the server accepted, with their sources
let misled = new Set(); // sentences about parts of the address that cannot be used
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

const filterKey = (filter) => JSON.stringify([state.dir, state.source, filter]);

/** Completes the state, and replaces names that the directory does not have; a selection in these is dropped. */
function settle() {
  const names = world.sources.map(({ name }) => name);
  if (!names.includes(state.source)) {
    const other = world.indexes.find(({ source }) => names.includes(source))?.source ?? names[0] ?? null;
    if (state.source !== null) mislead(`The source '${state.source}' is not in this directory`, other);
    Object.assign(state, { source: other, index: null });
  }
  const own = world.indexes.filter(({ source }) => source === state.source).map(({ index }) => index);
  if (!own.includes(state.index)) {
    if (state.index !== null) mislead(`The source '${state.source}' has no open index '${state.index}'`, own[0] ?? null);
    state.index = own[0] ?? null;
  }
  if (state.rows !== null && !names.includes(state.rows)) {
    misled.add(`The source '${state.rows}', whose records the address lists, is not in this directory, so those of ${state.source} are listed.`);
    state.rows = null;
  }
  const listed = state.rows ?? state.source;
  if (state.sort !== null && listed !== null && !hasColumn(world, listed, state.sort.column)) {
    misled.add(`The records of ${listed} have no field '${state.sort.column}' to sort by, so they are in the usual order.`);
    state.sort = null;
  }
  if (state.at !== null && !neighbours().includes(state.at.source)) {
    misled.add(`The source '${state.at.source}' has no record to open, so none is open.`);
    state.at = null;
  }
}

/** Learns the fields of the chosen source, and drops filters that do not fit them. */
async function settleFields(signal) {
  const source = world.sources.find(({ name }) => name === state.source);
  fields = source && !isSeries(source.name) ? await fieldsOf(state.dir, source, signal) : [];
  const refused = async (filter) => {
    const key = filterKey(filter);
    if (filter === "" || checked.has(key)) return null;
    const { error } = await ask(sql.check(state.dir, state.source, filter), signal);
    if (!error) checked.add(key);
    return error;
  };
  const wrong = await refused(state.filter);
  if (wrong) {
    misled.add(`The filter of the address does not fit ${state.source}, so the page shows all records.`);
    filterBox.refuse(state.filter, wrong);
    state.filter = "";
  }
  if (await refused(state.selection?.where ?? "")) {
    misled.add(`The condition '${state.selection.where}' of the selection does not fit ${state.source}, so it is left out.`);
    delete state.selection.where;
  }
  filterBox.show(state.filter, fields.map(({ name }) => name));
  if (state.group !== null && !fields.some(({ name, groups }) => groups && name === state.group)) {
    misled.add(`The field '${state.group}' of ${state.source} cannot be grouped by, so the page shows no groups.`);
    state.group = null;
  }
}

/** Reports that a name in the address does not exist, with the `other` that the page shows, and drops the selection in it. */
function mislead(what, other) {
  const dropped = state.selection === null ? "" : ", and nothing is selected";
  misled.add(`${what}, so the page shows ${other === null ? "none" : `'${other}'`}${dropped}.`);
  Object.assign(state, { selection: null, rows: null, span: state.zoomed ? state.span : null });
}

/** Queries; an answer in `answered` counts. */
async function ask(text, signal, answered = null) {
  if (answered?.has(text)) return answered.get(text);
  try {
    return { sql: text, ...(await query(text, signal)) };
  } catch (error) {
    if (signal.aborted || error instanceof Unreachable) throw error;
    return { sql: text, rows: [], error: error.message };
  }
}

/**
 * Queries and draws everything. A later call cancels an earlier one; a drag of the pointer continues. With `known`, the state of the directory is not
 * queried again if it is recent, and neither is a picture that has the answer: a window that follows the newest record moves with the next tick.
 */
async function refresh(known = false) {
  clearTimeout(timer);
  asked?.abort();
  const { signal } = (asked = new AbortController());
  const began = performance.now();
  try {
    if (!known || !world?.span || began - looked > KNOWN_MS) {
      due = began + REFRESH_MS;
      world = await look(state.dir, signal);
      looked = began;
    }
    settle();
    await settleFields(signal);
    if (world.span === null) showEmpty(world);
    else showOnly("main");
    if (world.span !== null && (following() || drawn === null || drawn.key !== pictureKey())) await askPictures(signal, known && mayShowAgain(began) ? answers : null);
    showHeader(world, misled, fields);
    chooser.show();
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
  if (!signal.aborted) timer = setTimeout(tick, Math.max(due - performance.now(), 250));
}

function tick() {
  if (brushing || document.hidden) timer = setTimeout(tick, 250);
  else refresh();
}

/** Whether the answers are recent, or about directories to which nobody writes. */
const mayShowAgain = (now) => now - answered < KNOWN_MS || !(world.alive || beside.shown?.world.alive);

const pictureKey = () => JSON.stringify([state.dir, state.source, state.index, state.span, state.filter, state.group, state.compare, state.find, state.split]);

async function askPictures(signal, known) {
  const { dir, source, index, compare } = state;
  const began = performance.now();
  const span = windowOf();
  const key = pictureKey();
  const [own, other] = await Promise.all([askWindow({ dir, world, span, live: world.alive }, signal, known), compare && askBeside(compare, span, signal, known)]);
  if (brushing) return;
  drawn = { key, ...own };
  answers = new Map([...Object.values(own), ...Object.values(other ?? {})].filter((each) => each?.sql && !each.error).map((answer) => [answer.sql, answer]));
  if (!known) answered = began;
  own.order({});
  if (other) {
    const [one, two] = compare.dir === null ? [] : [names.get(dir), names.get(compare.dir)];
    drawn.label = labelOf(span, "this window", one);
    other.label = labelOf(other.span, nameOf(compare), two);
    other.order(own);
  }
  by("main").classList.toggle("compared", Boolean(other));
  beside.show(other);
  pictures.draw(drawn, world);
  beside.draw(other, other?.world);
  table.show(drawn.alerts, drawn.pins);
  by("metrics").hidden = !isSeries(source);
  if (!isSeries(source)) return;
  const held = world.sources.find(({ name }) => name === source);
  await metrics.show({ dir, source, find: state.find, split: state.split, span, held, losses: drawn.losses.rows, signal });
}

/** The answers about the window to compare with; null if its directory cannot be read. */
async function askBeside(compare, span, signal, answered) {
  const dir = compare.dir ?? state.dir;
  try {
    const known = dir === state.dir ? world : await look(dir, signal);
    const other = windowBeside(compare, span, known.span?.newest ?? span.to);
    return await askWindow({ dir, world: known, span: other, live: known.alive && compare.when !== "before" }, signal, answered);
  } catch (error) {
    if (signal.aborted || error instanceof Unreachable) throw error;
    misled.add(`There is nothing to compare with: ${error.message}`);
    return null;
  }
}

/** All answers about a window of a directory; those in `answered` are not asked again. */
async function askWindow({ dir, world, span, live }, signal, answered) {
  const { source, index, filter } = state;
  const names = world.sources.filter(({ first_ts }) => first_ts !== null).map(({ name }) => name);
  const code = fields.find((field) => index !== null && field.isCode && field.name === world.field(source, index)) ?? null;
  const group = fields.find((field) => field.name === state.group) ?? null;
  const width = widthOf(span);
  const asked = (text) => ask(text, signal, answered);
  const none = { sql: "", rows: [] };
  // The server runs a few queries at once, so those that take the longest begin.
  const [grouped, bands, heat, quantiles, rate, losses, alerts, pins] = await Promise.all([
    group && asked(sql.groups(dir, source, span, group, { width, index, value: index === null || code ? null : world.field(source, index), filter })),
    code && asked(sql.groups(dir, source, span, code, { width, index, value: null, filter })),
    index === null || code ? null : asked(sql.heat(dir, source, index, span, live, filter)),
    index === null || code ? null : asked(sql.quantiles(dir, source, index, span, live, filter)),
    names.length === 0 ? none : asked(sql.rate(dir, names, span, live, { [source]: filter })),
    asked(sql.losses(dir, span)),
    world.alerts ? asked(sql.alerts(dir, span)) : none,
    asked(sql.pins(dir, span)),
  ]);
  if (heat) heat.cells = heat.rows.map((cell) => ({ ...cell, lower: number(cell.lower), upper: number(cell.upper) }));
  const rates = ratesOf({ rows: rate.rows, span, held: world.span ?? span, live });
  const ordered = (answer, field, like) => answer && (answer.of = groupsOf(answer.rows, field, span, width, like));
  const order = (like) => (ordered(bands, code, like.bands?.of.groups), ordered(grouped, group, like.grouped?.of.groups));
  return { span, world, names, rate, rates, losses, alerts, pins, quantiles, heat, bands, grouped, order };
}

/** The rates of the shown window, if the selection is a small part of it; otherwise 0. */
function usualRates({ from, to }) {
  const isPart = drawn !== null && to - from < PART_MOST * (drawn.span.to - drawn.span.from);
  return (name) => (isPart ? drawn.rates.mean(name) : 0);
}

// ---- choosing

function change(changes) {
  const step = ["dir", "source", "index", "span", "last", "filter", "group", "compare"].some((name) => name in changes && JSON.stringify(changes[name]) !== JSON.stringify(state[name]));
  Object.assign(state, changes);
  misled.clear();
  writeAddress(step);
  selection.show(world);
  refresh(true);
}

function chooseSource(source) {
  release("quantiles", "heat");
  change({ source, index: null, filter: "", group: null, selection: null, sort: null, rows: null });
}

function chooseWindow(last) {
  release("rate", "quantiles", "heat");
  change({ last, span: null, selection: null, rows: null, zoomed: false });
}

function clearSelection() {
  if (state.selection === null && state.span === null) return;
  change({ selection: null, rows: null, span: state.zoomed ? state.span : null });
}

function goLive() {
  change({ span: null, selection: null, rows: null, zoomed: false });
}

/** Changes the window; at most to the span of the records and as long again around it, and there as far as it goes. */
function shift(to) {
  if (drawn === null || world?.span == null) return;
  const before = state.span ?? drawn.span;
  const next = to(before);
  const long = Math.max(world.span.to - world.span.from, ALL_MIN_US);
  const [least, most] = [world.span.from - long, world.span.to + long];
  const back = Math.max(least - next.from, 0) - Math.max(next.to - most, 0);
  const span = { from: Math.round(next.from + back), to: Math.round(next.to + back) };
  const isSame = span.from === before.from && span.to === before.to;
  if (isSame || span.to - span.from < SPAN_MIN_US || span.from < least || span.to > most) return;
  release("rate", "quantiles", "heat");
  change({ span, zoomed: true });
}

function zoomToSelection() {
  const { from, to } = state.selection;
  change({ span: { from, to: Math.max(to, from + SPAN_MIN_US) }, zoomed: true });
}

/** The sources whose records have a neighbourhood. */
const neighbours = () => world.sources.filter(({ first_ts, name }) => first_ts !== null && !isSeries(name)).map(({ name }) => name);

function openRow(source, row) {
  if (!neighbours().includes(source)) return;
  setAt({ source, ns: String(row.ts_ns), addr: String(row.addr), side: null });
  showNear(row);
}

function setAt(at) {
  state.at = at;
  writeAddress();
}

/** Shows or closes the neighbourhood of a record, whose `row` the list has. */
function showNear(row = null) {
  if (state.at) near.show(state.dir, state.at, state.width, neighbours(), row);
  else by("near").close();
}

function sortRows(sort) {
  state.sort = sort;
  writeAddress();
  selection.show(world);
}

/** Draws a new pin in the pictures, also if they do not follow. */
function keptMore() {
  if (drawn !== null) drawn.key = null;
  refresh();
}

function listSource(source) {
  state.sort = null;
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
  if (frame.bands) {
    const where = conditionOf(drawn.bands.of, frame.bands.filter(({ top, bottom }) => top < y[1] && bottom > y[0]).map(({ group }) => group));
    return { ...box, index: state.index, vMin: null, vMax: null, where };
  }
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

/** Moves the crosshair of a window, and that of the other one to the same distance from its start. */
function hover(own, us, y) {
  own.hover(us === null ? null : { us, y });
  const other = own === pictures ? beside : pictures;
  if (other.shown) other.hover(us === null ? null : { us: us - own.shown.span.from + other.shown.span.from, y: null });
}

/** Discards the scales, which otherwise stay while data arrive. */
const release = (...names) => pictures.release(...names);

/** Shows the selection while it is dragged, and then takes it. */
function brushed(frame, values, box, done) {
  if (drawn === null) return;
  brushing = !done;
  const chosen = chosenBy(frame, box, values);
  if (!done) return pictures.drawOverlays(chosen);
  state.span ??= drawn.span;
  drawn.key = pictureKey();
  change({ selection: chosen, rows: null });
}

function clicked() {
  brushing = false;
  if (state.selection) clearSelection();
}

function start() {
  for (const [name, { figure, frame }] of Object.entries(pictures.all)) {
    const values = name === "heat";
    frame.listen({
      hover(us, y) {
        if (!brushing) hover(pictures, us, values ? y : null);
      },
      brush(box, done) {
        figure.dataset.brushing = String(!done);
        brushed(frame, values, box, done);
      },
      click: clicked,
    });
  }
  for (const [name, { frame }] of Object.entries(beside.all)) {
    frame.listen({ hover: (us, y) => hover(beside, us, name === "heat" ? y : null), brush() {}, click() {} });
  }
  by("window").append(...WINDOWS.map(([last, text]) => Object.assign(make("button", { type: "button", onclick: () => chooseWindow(last) }, text))));
  WINDOWS.forEach(([last], at) => (by("window").children[at].dataset.last = last));
  by("live").addEventListener("click", () => (following() ? change({ span: drawn?.span ?? null }) : goLive()));
  by("source").addEventListener("change", (event) => chooseSource(event.target.value));
  by("index").addEventListener("change", (event) => {
    release("quantiles", "heat");
    change({ index: event.target.value, selection: null, rows: null });
  });
  by("group").addEventListener("change", (event) => {
    release("rate", "quantiles");
    change({ group: event.target.value || null });
  });
  by("dir").addEventListener("change", (event) => {
    drawn = world = null;
    change({ dir: event.target.value, source: null, index: null, filter: "", group: null, compare: null, span: null, selection: null, sort: null, rows: null });
  });
  const redraw = () => (pictures.draw(), beside.draw(), metrics.paint());
  by("zone").addEventListener("click", () => {
    state.utc = !state.utc;
    writeAddress();
    if (world) showHeader(world, misled, fields);
    if (drawn) drawn.key = null;
    redraw();
    selection.show(world);
    refresh();
  });
  startTheme(by("theme"), redraw);
  addEventListener("resize", redraw);
  by("help").addEventListener("click", () => by("keys").showModal());
  addEventListener("hashchange", restore);
  listenToKeys(by("keys"), {
    filter: () => filterBox.focus(),
    move: (part) => shift((span) => ({ from: span.from + part * (span.to - span.from), to: span.to + part * (span.to - span.from) })),
    zoom: (factor) => shift(({ from, to }) => ({ from: (from + to) / 2 - (factor * (to - from)) / 2, to: (from + to) / 2 + (factor * (to - from)) / 2 })),
    // Without a list, the key scrolls the page.
    records: () => state.selection !== null && selection.focus(),
    compare: () => chooser.focus(),
    live: goLive,
    clear: clearSelection,
  });
}

/** Shows the state of the address. */
async function restore() {
  const before = state.dir;
  misled = new Set(readAddress());
  const [first, ...others] = [...by("dir").options].map(({ value }) => value);
  state.dir ??= first;
  if (![first, ...others].includes(state.dir)) {
    mislead(`The explorer was not given the directory ${state.dir}`, first);
    Object.assign(state, { dir: first, source: null, index: null });
  }
  if (state.compare?.dir === state.dir) state.compare.dir = null;
  if (state.compare && ![null, first, ...others].includes(state.compare.dir)) {
    misled.add(`The explorer was not given the directory ${state.compare.dir}, so it is not compared.`);
    state.compare = null;
  }
  if (state.compare && !isOffered(state.compare)) {
    misled.add(`'${nameOf(state.compare)}' compares with ${state.compare.dir === null ? "another" : "the shown"} directory, so the window is not compared. Choose from the list.`);
    state.compare = null;
  }
  by("dir").value = state.dir;
  drawn = null;
  if (state.dir !== before) world = null;
  await refresh();
  if (world) selection.show(world), showNear();
}

async function main() {
  const { directories, pins } = await about();
  pinned = pins;
  // A directory is shown by its name, unless two share it.
  const name = (dir) => dir.split("/").at(-1);
  names = new Map(directories.map((dir) => [dir, directories.filter((other) => name(other) === name(dir)).length > 1 ? dir : name(dir)]));
  by("dir").append(...directories.map((dir) => make("option", { value: dir, title: dir }, names.get(dir))));
  if (directories.length === 1) by("dir").dataset.one = "";
  by("dir").disabled = directories.length === 1;
  by("dir").title = directories.length === 1 ? directories[0] : "Loom directory";
  chooser = new Chooser(by("beside"), names, {
    start: () => drawn?.span.from ?? null,
    changed(compare) {
      release("rate", "quantiles", "heat");
      change({ compare });
    },
  });
  start();
  await restore();
}

main().catch((error) => showUnreadable(error.message, false));
