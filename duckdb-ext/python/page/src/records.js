// The list of records: sorted by any column, and each row opens its neighbourhood.

import { make } from "./dom.js";
import { valueFormat, when } from "./format.js";

const NS_DIGITS = 3;
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
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  note(text, isBad = false) {
    this.element.replaceChildren(make("p", { className: isBad ? "note bad" : "note" }, text));
  }

  clear() {
    this.element.replaceChildren();
  }

  /** Shows rows in an order { column, down }; `valued` is the column of the chosen index. */
  list({ names, rows }, order, valued) {
    if (rows.length === 0) return this.note("There are no records in the selection.");
    const shown = names.filter((name) => name !== "ts_ns" && name !== "addr");
    const numeric = new Set(shown.filter((name) => name !== "ts" && rows.every((row) => row[name] === null || typeof row[name] === "number")));
    const head = make("tr", {}, ...shown.map((name) => this.heading(name, numeric.has(name), order)));
    const body = rows.map((row) => {
      const cells = shown.map((name) => {
        if (name === "ts") return make("td", {}, exactly(row));
        const classes = [numeric.has(name) && "number", row[name] === null && "null", name === valued && "value"];
        return make("td", { className: classes.filter(Boolean).join(" "), title: String(row[name] ?? "NULL") }, written(name, row[name]));
      });
      const line = make("tr", { tabIndex: -1, onclick: () => getSelection().isCollapsed && this.actions.open(row) }, ...cells);
      line.opened = row;
      return line;
    });
    body[0].tabIndex = 0;
    this.element.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
    this.element.scrollTop = 0;
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

  key(event) {
    const row = event.target.closest("tbody tr");
    if (!row) return;
    if (event.key === "Enter" || event.key === " ") this.actions.open(row.opened);
    else if (event.key === "ArrowDown") row.nextElementSibling?.focus();
    else if (event.key === "ArrowUp") row.previousElementSibling?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
