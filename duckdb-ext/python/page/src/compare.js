// What the pictures are compared with: another window, or a window of another directory, and the control that chooses it.
//
// A comparison is { when, dir }. `when` is "before", for as long a window before; "same"; "newest", for one that ends at the newest record; or the start of a
// window in microseconds since 1970. `dir` is null for the directory that is shown.

import { make, options } from "./dom.js";
import { fromTo } from "./format.js";
import { state } from "./state.js";

const NAMES = { before: "the window before", same: "the same time", newest: "its newest records", chosen: "a chosen time" };

/** The windows of a directory that can be beside the shown one: in the directory that is shown, or in another. */
const offered = (dir) => (dir === null ? ["before", "chosen"] : ["same", "newest", "chosen"]);

const kindOf = ({ when }) => (typeof when === "number" ? "chosen" : when);

/** Whether the list has a comparison. */
export const isOffered = (compare) => offered(compare.dir).includes(kindOf(compare));

/** The window beside `span`; `newest` is the time of the newest record of its directory. */
export function windowBeside({ when }, { from, to }, newest) {
  if (when === "same") return { from, to };
  const end = { before: from, newest }[when];
  return end === undefined ? { from: when, to: when + to - from } : { from: end - (to - from), to: end };
}

/** Names a window, and its directory if there are two. */
export function labelOf({ from, to }, name, dir) {
  const places = (from % 1e6 || to % 1e6) && to - from < 60e6 ? 3 : 0;
  return [dir, name, fromTo(from, to, places)].filter(Boolean).join(", ");
}

/** The name of the window of a comparison. */
export const nameOf = (compare) => NAMES[kindOf(compare)];

/** The control: a list, and a time for a window that is chosen. */
export class Chooser {
  /** Calls `changed(comparison or null)`; `start()` gives the start of the shown window. */
  constructor(element, names, { changed, start }) {
    Object.assign(this, { names, changed, start });
    this.select = make("select", { id: "compare", onchange: () => this.choose() });
    this.time = make("input", { id: "compare-time", type: "datetime-local", step: "1", hidden: true, onchange: () => this.choose() });
    this.time.setAttribute("aria-label", "Start of the window to compare with");
    element.append(make("label", {}, "Compare with ", this.select), this.time);
  }

  focus() {
    this.select.focus();
  }

  /** Shows the comparison of the state. */
  show() {
    const { compare } = state;
    const valueOf = (kind, dir) => JSON.stringify([kind, dir]);
    const textOf = (kind, dir) => (dir === null ? NAMES[kind] : `${this.names.get(dir)}, ${NAMES[kind]}`);
    const others = [...this.names.keys()].filter((dir) => dir !== state.dir);
    const pairs = [null, ...others].flatMap((dir) => offered(dir).map((kind) => [valueOf(kind, dir), textOf(kind, dir)]));
    options(this.select, [["", "nothing"], ...pairs], compare && valueOf(kindOf(compare), compare.dir));
    const isChosen = compare !== null && kindOf(compare) === "chosen";
    this.time.hidden = !isChosen;
    if (isChosen && document.activeElement !== this.time) this.time.value = written(compare.when);
  }

  choose() {
    if (this.select.value === "") return this.changed(null);
    const [chosen, dir] = JSON.parse(this.select.value);
    const isNew = typeof state.compare?.when !== "number";
    const time = isNew ? this.start() : read(this.time.value);
    if (chosen !== "chosen") this.changed({ when: chosen, dir });
    else if (time !== null) this.changed({ when: time, dir });
  }
}

/** A time as the control has it, in the zone of the page. */
function written(us) {
  const date = new Date(Math.floor(us / 1000));
  const shown = state.utc ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shown.toISOString().slice(0, 19);
}

function read(text) {
  const ms = Date.parse(state.utc ? `${text}Z` : text);
  return Number.isNaN(ms) ? null : ms * 1000;
}
