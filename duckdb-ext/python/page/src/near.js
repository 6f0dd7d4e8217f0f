// One record and its neighbourhood: the records of all sources around it, on one time line and as a list, and its trace.

import { query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { plural, valueFormat, whole } from "./format.js";
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

/** The time between two records, signed. */
export const since = (ns) => (ns === 0 ? "0" : `${ns > 0 ? "+" : "−"}${valueFormat("ns")(Math.abs(ns))}`);

const summary = (row) =>
  Object.entries(row)
    .filter(([name, value]) => !["since_ns", "of", "ts", "ts_ns", "addr"].includes(name) && value !== null && value !== "")
    .map(([name, value]) => `${name} ${written(name, value)}`)
    .join("  ");

export class Near {
  /** `actions`: { close(), width(us) }. */
  constructor(dialog, actions) {
    this.dialog = dialog;
    this.actions = actions;
    this.drawer = new SqlDrawer();
    this.heading = make("h2");
    this.widths = make("div", { className: "segments", role: "group", ariaLabel: "Length of the time line" }, ...WIDTHS.map(([us, text]) => make("button", { type: "button", onclick: () => actions.width(us) }, text)));
    const close = make("button", { type: "button", title: "Close (Esc)", onclick: () => dialog.close() }, "Close");
    this.record = make("p", { className: "record" });
    this.lanes = new Lanes();
    this.told = make("p", { className: "said" });
    this.list = make("div", { className: "table" });
    this.trace = new Trace();
    dialog.append(make("div", { className: "title" }, this.heading, this.widths, this.drawer.button, close), this.drawer.drawer, this.record, this.trace.element, this.lanes.element, this.told, this.list);
    dialog.addEventListener("close", () => this.closed());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    addEventListener("resize", () => dialog.open && this.lanes.draw());
  }

  closed() {
    this.asked?.abort();
    this.actions.close();
  }

  /** Shows a record, { source, ns, addr }; `sources` are those of the directory. */
  async show(dir, { source, ns, addr }, width, sources) {
    this.asked?.abort();
    const { signal } = (this.asked = new AbortController());
    for (const [order, button] of [...this.widths.children].entries()) button.setAttribute("aria-pressed", String(WIDTHS[order][0] === width));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.dataset.state = "asking";
    const texts = sources.map((name) => sql.near(dir, name, ns, width));
    this.drawer.show(`${texts.join(";\n\n")};`);
    try {
      const answers = await Promise.all(texts.map((text) => query(text, signal)));
      if (signal.aborted) return;
      const found = sources.map((name, order) => ({ name, colour: seriesColour(order), rows: answers[order].rows, total: Number(answers[order].rows[0]?.of ?? 0) }));
      const own = found.find(({ name }) => name === source)?.rows.find((row) => String(row.addr) === addr);
      this.heading.textContent = own ? `${source}  ·  ${exactly(own)}` : `${source}: the record is not there any more`;
      this.record.textContent = own ? summary(own) : "";
      this.draw(found, own, source, width);
      this.dialog.dataset.state = "shown";
      await this.trace.show(dir, own, sources, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.told.textContent = error.message;
      this.dialog.dataset.state = "failed";
    }
  }

  draw(found, own, source, width) {
    const lanes = found
      .filter(({ rows }) => rows.length > 0)
      .map(({ name, colour, rows, total }) => ({
        name: `${name}  ${whole(total)}`,
        colour,
        marks: rows.map((row) => {
          const [from, to] = spanOf(name, row);
          return { from, to, at: Number(row.since_ns), isOwn: row === own, text: `${name} ${since(Number(row.since_ns))}  ${summary(row)}` };
        }),
      }));
    this.lanes.show(lanes, -width * 1000, width * 1000);
    const all = found.flatMap(({ name, rows }) => rows.map((row) => ({ name, row })));
    const nearest = all.sort((a, b) => Math.abs(a.row.since_ns) - Math.abs(b.row.since_ns)).slice(0, LISTED);
    nearest.sort((a, b) => a.row.since_ns - b.row.since_ns);
    const total = found.reduce((sum, each) => sum + each.total, 0);
    const drawn = all.length;
    this.told.textContent = `${plural(total)} of ${found.filter((each) => each.total > 0).length} sources.` + (drawn < total ? ` The nearest ${whole(drawn)} are drawn.` : "") + (nearest.length < drawn ? ` The nearest ${whole(nearest.length)} are listed.` : "");
    const body = nearest.map(({ name, row }) =>
      make("tr", { className: row === own ? "own" : "" }, make("td", { className: "number" }, since(Number(row.since_ns))), make("td", {}, name), make("td", { className: "text", title: summary(row) }, summary(row))),
    );
    this.list.replaceChildren(make("table", {}, make("tbody", {}, ...body)));
    this.list.querySelector(".own")?.scrollIntoView({ block: "center" });
    this.dialog.scrollTop = 0;
  }
}
