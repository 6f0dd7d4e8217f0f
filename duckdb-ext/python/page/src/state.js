// The state of the page, and its form in the address after '#', which restores it elsewhere.
//
//   last       the length of the window before the newest record, in seconds; 0 shows everything
//   span       { from, to } of a fixed window; null while the window follows the newest record
//   selection  { from, to } and, if values are selected, { index, vMin, vMax }, where null is an open bound, and { where }, a filter, if they are categories; null
//              without a selection
//   zoomed     whether the user chose `span`; false if it is only fixed for a selection
//   filter     the filter of the source, in the grammar of Loom's functions; empty without one
//   group      the field by which the source is grouped; null without one
//   compare    { when, dir } of the window beside it, as compare.js describes it; null without one
//   find, split   the text that the shown metrics contain, and the label by which they are split
//   sort       { column, down }, the order of the listed rows; null for the greatest values of the selection's index first
//   at         { source, ns, addr, side } of the record whose neighbourhood is open, with "start" or "end" as the side of the record in its middle; null if none is
//   width      half the length of the neighbourhood, in microseconds
//   rows       the source whose rows are listed, if it differs from `source`

import { instant } from "./sql.js";

const LAST_MAX = 1e9;
const WIDTH = 1000;
const WHENS = ["before", "same", "newest"];
/** The widths that a neighbourhood can have, with their names. */
export const WIDTHS = [[10, "± 10 µs"], [100, "± 100 µs"], [WIDTH, "± 1 ms"], [10_000, "± 10 ms"], [100_000, "± 100 ms"]];

export const state = { dir: null, source: null, index: null, last: 60, span: null, selection: null, filter: "", group: null, compare: null, find: "", split: null, sort: null, at: null, width: WIDTH, rows: null, utc: false, zoomed: false };

/** Whether the window follows the newest record. */
export const following = () => state.span === null;

const time = (us) => instant(us).slice(1, -4).replace(" ", "T") + "Z";

function parseTime(given) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/.exec(given ?? "");
  if (!found) return null;
  const ms = Date.parse(`${found[1]}Z`);
  return Number.isNaN(ms) ? null : ms * 1000 + Number((found[2] ?? "").padEnd(6, "0"));
}

function parseSpan(from, to) {
  const span = { from: parseTime(from), to: parseTime(to) };
  return span.from !== null && span.to !== null && span.from < span.to ? span : null;
}

/** Reads the state from the address; properties that it omits keep their value or get the default. */
export function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const last = Number(given.get("last") ?? 60);
  state.dir = given.get("dir") ?? state.dir;
  state.source = given.get("source");
  state.index = given.get("index");
  state.last = last >= 0 && last <= LAST_MAX ? last : 60;
  state.span = parseSpan(given.get("from"), given.get("to"));
  state.selection = parseSpan(given.get("sel_from"), given.get("sel_to"));
  state.rows = given.get("rows");
  state.filter = given.get("filter") ?? "";
  state.group = given.get("group");
  const beside = given.get("with");
  const when = WHENS.includes(beside) ? beside : parseTime(beside);
  state.compare = when === null ? null : { when, dir: given.get("with_dir") };
  state.find = given.get("find") ?? "";
  state.split = given.get("split");
  const ns = given.get("at");
  const addr = given.get("at_addr");
  const side = ["start", "end"].find((side) => side === given.get("at_side")) ?? null;
  state.at = /^\d{1,19}$/.test(ns ?? "") && addr !== null && given.has("at_source") ? { source: given.get("at_source"), ns, addr, side } : null;
  const width = Number(given.get("width"));
  state.width = WIDTHS.some(([us]) => us === width) ? width : WIDTH;
  const sort = given.get("sort");
  state.sort = sort === null ? null : { column: sort.replace(/^-/, ""), down: sort.startsWith("-") };
  state.utc = given.get("zone") === "utc";
  const bound = (name, none) => (given.get(name) === none ? null : Number(given.get(name) ?? NaN));
  const [vMin, vMax] = [bound("v_min", "-inf"), bound("v_max", "inf")];
  if (state.selection && state.index && !Number.isNaN(vMin) && !Number.isNaN(vMax)) Object.assign(state.selection, { index: state.index, vMin, vMax });
  const where = given.get("sel_where");
  if (state.selection && where) state.selection.where = where;
  state.zoomed = state.span !== null && state.selection === null;
}

/** Writes the state into the address; with `step`, Back returns to the state before. */
export function writeAddress(step = false) {
  const { dir, source, index, last, span, selection, filter, group, compare, find, split, sort, at, width, rows, utc } = state;
  const written = new URLSearchParams();
  const put = (name, value) => value !== null && value !== undefined && value !== "" && written.set(name, value);
  const writeBounds = ({ index, vMin, vMax }) => index !== undefined && (put("v_min", vMin ?? "-inf"), put("v_max", vMax ?? "inf"));
  put("dir", dir);
  put("source", source);
  put("index", index);
  put("last", last);
  if (span) put("from", time(span.from)), put("to", time(span.to));
  if (selection) put("sel_from", time(selection.from)), put("sel_to", time(selection.to)), writeBounds(selection), put("sel_where", selection.where);
  put("filter", filter);
  put("group", group);
  if (compare) put("with", WHENS.includes(compare.when) ? compare.when : time(compare.when)), put("with_dir", compare.dir);
  put("find", find);
  put("split", split);
  if (sort) put("sort", (sort.down ? "-" : "") + sort.column);
  put("rows", rows);
  if (at) put("at", at.ns), put("at_addr", at.addr), put("at_source", at.source), put("at_side", at.side), put("width", width);
  if (utc) put("zone", "utc");
  history[step ? "pushState" : "replaceState"](null, "", `#${written.toString().replaceAll("%3A", ":").replaceAll("%2F", "/")}`);
}
