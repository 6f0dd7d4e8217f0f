// The list of records: sorted by any column, and each row opens its neighbourhood. The first rows come at once, and the others with `fill`, when the page is idle,
// because most of the time of a long list goes into its layout.

import { make } from "./dom.js";
import { valueFormat, when } from "./format.js";

/** The rows that come at once, more than are in view, and those of each further step. */
const [FIRST, CHUNK] = [50, 250];
const NS_DIGITS = 3;
/** Safari has no idle callbacks. */
const whenIdle = globalThis.requestIdleCallback ?? setTimeout;
const forget = globalThis.cancelIdleCallback ?? clearTimeout;
const UNIT = /_(ns|us|ms|bytes)$/;

/** The text of a time to the nanosecond, of a row with `ts` and `ts_ns`. */
export const exactly = ({ ts, ts_ns }) => when(ts, 6) + String(ts_ns).slice(-NS_DIGITS);

/** The text of a value: with its unit if the name of the field has one. */
export const written = (name, value) => (value === null ? "NULL" : typeof value === "number" && UNIT.test(name) ? valueFormat(name)(value) : String(value));

export class Records {
  /** `actions`: { sort(order), open(row) }. */
  constructor(actions) {
    this.actions = actions;
    this.element = make("div", { className: "table", tabIndex: -1 });
    this.filling = 0;
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  note(text, isBad = false) {
    this.clear();
    this.element.replaceChildren(make("p", { className: isBad ? "note bad" : "note" }, text));
  }

  clear() {
    forget(this.filling);
    this.element.ariaBusy = "false";
    this.element.replaceChildren();
  }

  /** Shows rows in an order { column, down }; `valued` is the column of the chosen index. */
  list({ names, rows }, order, valued) {
    this.clear();
    if (rows.length === 0) return this.note("There are no records in the selection.");
    const shown = names.filter((name) => name !== "ts_ns" && name !== "addr");
    const numeric = new Set(shown.filter((name) => name !== "ts" && rows.every((row) => row[name] === null || typeof row[name] === "number")));
    const head = make("tr", {}, ...shown.map((name) => this.heading(name, numeric.has(name), order)));
    const line = (row) => {
      const cells = shown.map((name) => {
        if (name === "ts") return make("td", {}, exactly(row));
        const classes = [numeric.has(name) && "number", row[name] === null && "null", name === valued && "value"];
        return make("td", { className: classes.filter(Boolean).join(" "), title: String(row[name] ?? "NULL") }, written(name, row[name]));
      });
      const line = make("tr", { tabIndex: -1, onclick: () => getSelection().isCollapsed && this.actions.open(row) }, ...cells);
      line.opened = row;
      return line;
    };
    const body = make("tbody");
    // The widest texts of all rows decide the widths, so nothing moves when further rows come. All digits are equally wide, and so are all times.
    const context = new OffscreenCanvas(1, 1).getContext("2d");
    context.font = getComputedStyle(this.element).font;
    const widest = { ...rows[0] };
    for (const name of shown.filter((name) => name !== "ts")) {
      const width = ({ [name]: value }) => (numeric.has(name) ? written(name, value).length : context.measureText(written(name, value)).width);
      const widths = rows.map(width);
      widest[name] = rows[widths.indexOf(Math.max(...widths))][name];
    }
    const foot = make("tfoot", { ariaHidden: "true" }, line(widest));
    this.element.replaceChildren(make("table", {}, make("thead", {}, head), body, foot));
    this.element.scrollTop = 0;
    let drawn = 0;
    this.more = (count) => {
      body.append(...rows.slice(drawn, (drawn += count)).map(line));
      this.element.ariaBusy = String(drawn < rows.length);
    };
    this.more(FIRST);
    body.firstChild.tabIndex = 0;
  }

  /** Draws the rows that did not come at once. */
  fill() {
    if (this.element.ariaBusy !== "true") return;
    this.filling = whenIdle(() => {
      this.more(CHUNK);
      this.fill();
    });
  }

  /** The heading of a column, which sorts by it: the greatest first, or for time the earliest, and then the other way. */
  heading(name, isNumber, order) {
    const column = name === "ts" ? "ts_ns" : name;
    const isChosen = order.column === column;
    const down = isChosen ? !order.down : column !== "ts_ns";
    const button = make("button", { type: "button", onclick: () => this.actions.sort({ column, down }) }, name === "ts" ? "time" : name, isChosen ? (order.down ? " ↓" : " ↑") : "");
    const cell = make("th", { className: isNumber ? "number" : "" }, button);
    if (isChosen) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    return cell;
  }

  /** Moves the focus to the first row. */
  focus() {
    this.element.querySelector("tbody tr")?.focus();
  }

  /** Moves the focus to the next row, which may not be drawn yet. */
  focusAfter(row) {
    if (!row.nextElementSibling && this.element.ariaBusy === "true") this.more(CHUNK);
    row.nextElementSibling?.focus();
  }

  key(event) {
    const row = event.target.closest("tbody tr");
    if (!row) return;
    if (event.key === "Enter" || event.key === " ") this.actions.open(row.opened);
    else if (event.key === "ArrowDown") this.focusAfter(row);
    else if (event.key === "ArrowUp") row.previousElementSibling?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
