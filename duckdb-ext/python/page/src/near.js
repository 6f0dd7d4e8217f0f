// One record and its neighbourhood: the records of all sources around it, on one time line and as a list, and its trace.

import { query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { plural, several, valueFormat, whole } from "./format.js";
import { seriesColour } from "./lines.js";
import { exactly, written } from "./records.js";
import * as sql from "./sql.js";
import { Lanes } from "./lanes.js";
import { WIDTHS } from "./state.js";
import { Trace } from "./trace.js";

const LISTED = 200;
const LENGTH = /^(latency|duration|elapsed|took)(_(ns|us|ms))?$/;
const NS = { ns: 1, us: 1e3, ms: 1e6 };

/** The length of a record in nanoseconds, if it has one. */
function lengthOf(row) {
  for (const [name, value] of Object.entries(row)) {
    const found = LENGTH.exec(name);
    if (found?.[3] && Number.isFinite(value)) return value * NS[found[3]];
  }
  return 0;
}

/** From when to when a record lasted, in nanoseconds since the middle. A span has the time of its start, any other record that of its end. */
export function spanOf(source, row) {
  const [at, length] = [Number(row.since_ns), lengthOf(row)];
  return source === "spans" ? [at, at + length] : [at - length, at];
}

const SIDES = [["start", "Its start"], ["end", "Its end"]];
const OWN = ["since_ns", "of", "ts", "ts_ns", "addr"];

/** The fields of a record that have a value. */
const fieldsOf = (row) => Object.entries(row).filter(([name, value]) => !OWN.includes(name) && value !== null && value !== "");

/** The time between two records, signed. */
export const since = (ns) => (ns === 0 ? "0" : `${ns > 0 ? "+" : "−"}${valueFormat("ns")(Math.abs(ns))}`);

const summary = (row) => fieldsOf(row).map(([name, value]) => `${name} ${written(name, value)}`).join("  ");

export class Near {
  /** `actions`: { close(), width(us), side(name) }. */
  constructor(dialog, actions) {
    this.dialog = dialog;
    this.actions = actions;
    this.drawer = new SqlDrawer();
    this.heading = make("h2");
    this.widths = make("div", { className: "segments", role: "group", ariaLabel: "Length of the time line" }, ...WIDTHS.map(([us, text]) => make("button", { type: "button", onclick: () => actions.width(us) }, text)));
    this.sides = make("div", { className: "segments", role: "group", ariaLabel: "Middle of the time line" }, ...SIDES.map(([side, text]) => make("button", { type: "button", onclick: () => actions.side(side) }, text)));
    const close = make("button", { type: "button", title: "Close (Esc)", onclick: () => dialog.close() }, "Close");
    this.record = make("p", { className: "record" });
    this.lanes = new Lanes();
    this.told = make("p", { className: "said" });
    this.list = make("div", { className: "table" });
    this.trace = new Trace();
    dialog.append(make("div", { className: "title" }, this.heading, this.sides, this.widths, this.drawer.button, close), this.drawer.drawer, this.record, this.trace.element, this.lanes.element, this.told, this.list);
    dialog.addEventListener("close", () => this.closed());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    addEventListener("resize", () => dialog.open && this.lanes.draw());
  }

  closed() {
    this.asked?.abort();
    this.actions.close();
  }

  /** The browser lays out the page below again, which takes as long as a query; so the queries begin first. */
  open() {
    if (!this.dialog.open) this.dialog.showModal();
  }

  /** Shows a record, { source, ns, addr, side }; `sources` are those of the directory, and `known` is the row of the record if it need not be queried. */
  async show(dir, { source, ns, addr, side }, width, sources, known = null) {
    this.asked?.abort();
    const { signal } = (this.asked = new AbortController());
    for (const [order, button] of [...this.widths.children].entries()) button.setAttribute("aria-pressed", String(WIDTHS[order][0] === width));
    this.dialog.dataset.state = "asking";
    if (this.addr !== addr) this.shared = null;
    this.addr = addr;
    try {
      const asked = known ? { ...known, since_ns: 0 } : query(sql.record(dir, source, ns, addr), signal).then(({ rows }) => rows[0]);
      if (!known) this.open();
      const own = await asked;
      const [first, last] = own ? spanOf(source, own) : [0, 0];
      const middle = side === "start" ? first : side === "end" ? last : 0;
      const texts = sources.map((name) => sql.near(dir, name, String(BigInt(ns) + BigInt(Math.round(middle))), width));
      this.drawer.show(`${texts.join(";\n\n")};`);
      this.sides.hidden = first === last;
      for (const [order, button] of [...this.sides.children].entries()) button.setAttribute("aria-pressed", String(middle === [first, last][order]));
      const near = Promise.all(texts.map((text) => query(text, signal)));
      this.open();
      const answers = await near;
      if (signal.aborted) return;
      const found = sources.map((name, order) => ({ name, colour: seriesColour(order), rows: answers[order].rows, total: Number(answers[order].rows[0]?.of ?? 0) }));
      if (own) this.place(own, -middle, found.find(({ name }) => name === source).rows);
      this.heading.textContent = own ? `${source}  ·  ${exactly(own)}` : `${source}: the record is not there any more`;
      this.draw(found, own, width);
      this.dialog.dataset.state = "shown";
      await this.trace.show(dir, own, sources, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.told.textContent = error.message;
      this.dialog.dataset.state = "failed";
    }
  }

  /** Puts the own record among the others of its source; it is there too if the time line does not have its time. */
  place(own, since_ns, rows) {
    own.since_ns = since_ns;
    const at = rows.findIndex(({ addr }) => addr === own.addr);
    this.isOutside = at < 0;
    if (this.isOutside) rows.push(own);
    else rows[at] = own;
  }

  /** Draws the records, or only those that have a chosen value of the own one. */
  draw(found, own, width) {
    const value = own?.[this.shared];
    const isShown = (row) => value === undefined || row === own || fieldsOf(row).some(([, other]) => String(other) === String(value));
    this.record.replaceChildren(...fieldsOf(own ?? {}).flatMap(([name, value]) => [this.field(name, value, () => this.draw(found, own, width)), " "]));
    const lanes = found
      .map((each) => ({ ...each, rows: each.rows.filter(isShown) }))
      .filter(({ rows }) => rows.length > 0)
      .map(({ name, colour, rows, total }) => ({
        name: `${name}  ${whole(total)}`,
        colour,
        marks: rows.map((row) => {
          const [from, to] = spanOf(name, row);
          // There are thousands of marks, and only the one under the pointer shows its text.
          return { from, to, at: Number(row.since_ns), isOwn: row === own, get text() { return `${name} ${since(this.at)}  ${summary(row)}`; } };
        }),
      }));
    this.lanes.show(lanes, -width * 1000, width * 1000);
    const all = found.flatMap(({ name, rows }) => rows.map((row) => ({ name, row })));
    const outside = this.isOutside ? 1 : 0;
    const drawn = all.length - outside;
    const total = found.reduce((sum, each) => sum + each.total, 0);
    const chosen = all.filter(({ row }) => isShown(row)).sort((a, b) => Math.abs(a.row.since_ns) - Math.abs(b.row.since_ns));
    const nearest = chosen.filter(({ row }, order) => order < LISTED || row === own);
    this.told.textContent =
      `${plural(total)} of ${several(found.filter((each) => each.total > 0).length, "source")}.` +
      (drawn < total ? ` The nearest ${whole(drawn)} are drawn.` : "") +
      (value === undefined ? "" : ` ${whole(chosen.length - outside)} of these have ${value} in a field.`) +
      (nearest.length < chosen.length ? ` The nearest ${whole(nearest.length)} are listed.` : "");
    const lines = new Map(
      nearest.map(({ name, row }) => {
        const title = summary(row);
        return [row, make("tr", { className: row === own ? "own" : "" }, make("td", { className: "number" }, since(Number(row.since_ns))), make("td", {}, name), make("td", { className: "text", title }, title))];
      }),
    );
    const ordered = nearest.map(({ row }) => row).sort((a, b) => a.since_ns - b.since_ns);
    this.list.replaceChildren(make("table", {}, make("tbody", {}, ...ordered.map((row) => lines.get(row)))));
    lines.values().next().value?.scrollIntoView({ block: "center" });
    this.dialog.scrollTop = 0;
  }

  /** A field of the own record; a click shows only the records that have its value. */
  field(name, value, draw) {
    const choose = () => ((this.shared = this.shared === name ? null : name), draw());
    const button = make("button", { type: "button", title: `Show only records that have ${value} in a field`, onclick: choose }, `${name} ${written(name, value)}`);
    button.setAttribute("aria-pressed", String(this.shared === name));
    return button;
  }
}
