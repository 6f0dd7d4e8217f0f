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

import { digits, number, oneOf, Parts, time } from "./parts.js";
import { instant } from "./sql.js";

const LAST = 60;
const LAST_MAX = 1e9;
const WIDTH = 1000;
const WHENS = ["before", "same", "newest"];
/** The widths that a neighbourhood can have, with their names. */
export const WIDTHS = [[10, "± 10 µs"], [100, "± 100 µs"], [WIDTH, "± 1 ms"], [10_000, "± 10 ms"], [100_000, "± 100 ms"]];

export const state = { dir: null, source: null, index: null, last: LAST, span: null, selection: null, filter: "", group: null, compare: null, find: "", split: null, sort: null, at: null, width: WIDTH, rows: null, utc: false, zoomed: false };

/** Whether the window follows the newest record. */
export const following = () => state.span === null;

const written = (us) => instant(us).slice(1, -4).replace(" ", "T") + "Z";

/** Reads the state from the address; properties that it omits keep their value or get the default. Returns a sentence for each part that is wrong. */
export function readAddress() {
  const parts = new Parts(location.hash.slice(1));
  state.dir = parts.text("dir") ?? state.dir;
  state.source = parts.text("source");
  state.index = parts.text("index");
  state.last = parts.value("last", number(0, LAST_MAX), LAST, `the window has the last ${LAST} seconds`);
  state.span = parts.span("from", "to", "the window follows the newest record");
  state.selection = readSelection(parts);
  state.zoomed = state.span !== null && state.selection === null;
  state.rows = parts.text("rows");
  state.filter = parts.text("filter") ?? "";
  state.group = parts.text("group");
  const when = parts.value("with", oneOf(WHENS, time), null, "nothing is compared");
  state.compare = when === null ? null : { when, dir: parts.text("with_dir") };
  parts.needs("with_dir", ["with"], "nothing is compared");
  state.find = parts.text("find") ?? "";
  state.split = parts.text("split");
  const ns = parts.value("at", digits, null, "no record is open");
  const addr = parts.value("at_addr", digits, null, "no record is open");
  const side = parts.value("at_side", oneOf(["start", "end"]), null, "the time of the record is in the middle");
  const isWhole = parts.needs("at", ["at_addr", "at_source"], "no record is open");
  for (const name of ["at_addr", "at_source", "at_side"]) parts.needs(name, ["at"], "no record is open");
  state.at = ns !== null && addr !== null && isWhole ? { source: parts.text("at_source"), ns, addr, side } : null;
  state.width = parts.value("width", oneOf(WIDTHS.map(([us]) => us)), WIDTH, `the neighbourhood has ${WIDTHS.find(([us]) => us === WIDTH)[1]}`);
  const sort = parts.text("sort");
  state.sort = sort === null ? null : { column: sort.replace(/^-/, ""), down: sort.startsWith("-") };
  state.utc = parts.value("zone", oneOf(["utc"]), null, "times are in the zone of the browser") !== null;
  parts.rest();
  return parts.problems;
}

function readSelection(parts) {
  const [nothing, anyValue] = ["nothing is selected", "the selection has any value"];
  const selection = parts.span("sel_from", "sel_to", nothing);
  const ofValues = ["v_min", "v_max", "sel_where"].filter((name) => parts.has(name));
  if (selection === null) {
    if (ofValues.length && !parts.has("sel_from") && !parts.has("sel_to")) parts.needs(ofValues[0], ["sel_from", "sel_to"], nothing);
    return null;
  }
  const isBounded = parts.has("v_min") || parts.has("v_max");
  if (isBounded && parts.needs(ofValues[0], ["index"], anyValue)) {
    const vMin = parts.value("v_min", oneOf(["-inf"], number()), "-inf", "the selection has no least value");
    const vMax = parts.value("v_max", oneOf(["inf"], number()), "inf", "the selection has no greatest value");
    if (vMin > vMax) parts.wrong("v_min", `is greater than 'v_max=${vMax}'`, anyValue);
    else Object.assign(selection, { index: state.index, vMin: vMin === "-inf" ? null : vMin, vMax: vMax === "inf" ? null : vMax });
  }
  const where = parts.text("sel_where");
  return where ? { ...selection, where } : selection;
}

/** Writes the state into the address; with `step`, Back returns to the state before. */
export function writeAddress(step = false) {
  const { dir, source, index, last, span, selection, filter, group, compare, find, split, sort, at, width, rows, utc } = state;
  const parts = new URLSearchParams();
  const put = (name, value) => value !== null && value !== undefined && value !== "" && parts.set(name, value);
  const writeBounds = ({ index, vMin, vMax }) => index !== undefined && (put("v_min", vMin ?? "-inf"), put("v_max", vMax ?? "inf"));
  put("dir", dir);
  put("source", source);
  put("index", index);
  put("last", last);
  if (span) put("from", written(span.from)), put("to", written(span.to));
  if (selection) put("sel_from", written(selection.from)), put("sel_to", written(selection.to)), writeBounds(selection), put("sel_where", selection.where);
  put("filter", filter);
  put("group", group);
  if (compare) put("with", WHENS.includes(compare.when) ? compare.when : written(compare.when)), put("with_dir", compare.dir);
  put("find", find);
  put("split", split);
  if (sort) put("sort", (sort.down ? "-" : "") + sort.column);
  put("rows", rows);
  if (at) put("at", at.ns), put("at_addr", at.addr), put("at_source", at.source), put("at_side", at.side), put("width", width);
  if (utc) put("zone", "utc");
  history[step ? "pushState" : "replaceState"](null, "", `#${parts.toString().replaceAll("%3A", ":").replaceAll("%2F", "/")}`);
}
