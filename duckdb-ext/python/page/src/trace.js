// The trace of a record: its spans as a waterfall, with the system calls and packets of the same threads and time under them.

import { query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { plural, valueFormat, whole } from "./format.js";
import { seriesColour } from "./lines.js";
import { Lanes } from "./lanes.js";
import * as sql from "./sql.js";

const UNDER = ["syscall", "packet"];
const THREADS = ["thread.id", "thread_id", "tid"];
const format = valueFormat("ns");

export class Trace {
  constructor() {
    this.drawer = new SqlDrawer();
    this.heading = make("h3");
    this.spans = make("div", { className: "waterfall" });
    this.lanes = new Lanes();
    this.told = make("p", { className: "said" });
    this.element = make("section", { className: "trace", hidden: true }, make("div", { className: "head" }, this.heading, this.drawer.button), this.drawer.drawer, this.spans, this.lanes.element, this.told);
    addEventListener("resize", () => this.element.hidden || this.lanes.draw());
  }

  /** Shows the trace of a record of a directory, if it has one. */
  async show(dir, row, sources, signal) {
    const id = row?.trace_id ?? null;
    this.element.hidden = id === null || id === "" || !sources.includes("spans");
    if (this.element.hidden) return;
    this.element.dataset.state = "asking";
    this.heading.textContent = `Trace ${id}`;
    const text = sql.trace(dir, id, String(row.ts_ns));
    this.drawer.show(text);
    const { rows } = await query(text, signal);
    if (signal.aborted) return;
    if (rows.length === 0) {
      this.spans.replaceChildren(make("p", { className: "note" }, "No span of this trace is here."));
      this.element.dataset.state = "shown";
      return;
    }
    const first = rows.reduce((least, { since_ns }) => Math.min(least, Number(since_ns)), Infinity);
    const end = rows.reduce((most, { since_ns, duration_ns }) => Math.max(most, Number(since_ns) + Number(duration_ns ?? 0)), first + 1);
    this.draw(rows, first, end, row);
    await this.under(dir, rows, row, first, end, sources, signal);
    this.element.dataset.state = "shown";
  }

  draw(rows, first, end, own) {
    const long = end - first;
    const services = [...new Set(rows.map(({ service }) => service))];
    const lines = ordered(rows).map(({ row, depth }) => {
      const from = Number(row.since_ns) - first;
      const length = Number(row.duration_ns ?? 0);
      const bar = make("i");
      bar.style.left = `${(from / long) * 100}%`;
      bar.style.width = `max(2px, ${(length / long) * 100}%)`;
      bar.style.background = seriesColour(services.indexOf(row.service));
      const name = make("span", { className: "name", title: `${row.service ?? ""} ${row.name ?? ""}` }, make("small", {}, row.service ?? ""), " ", row.name ?? "");
      name.style.paddingLeft = `${Math.min(depth, 12) * 12}px`;
      const isOwn = row.span_id !== null && row.span_id === own.span_id;
      return make("div", { className: `span${isOwn ? " own" : ""}${row.status === "ERROR" || row.status === "error" ? " failed" : ""}` }, name, make("span", { className: "time" }, bar), make("span", { className: "number" }, format(length)));
    });
    this.spans.replaceChildren(...lines);
  }

  /** The system calls and packets in the time of the spans, those of their threads if the spans name them. */
  async under(dir, rows, own, first, end, sources, signal) {
    const threads = [...new Set(rows.map(threadOf).filter((thread) => thread !== null))];
    const names = UNDER.filter((name) => sources.includes(name));
    const texts = names.map((name) => sql.under(dir, name, String(own.ts_ns), first, end, name === "syscall" ? threads : []));
    this.drawer.show([this.drawer.text.textContent, ...texts].join(";\n\n"));
    const answers = await Promise.all(texts.map((text) => query(text, signal)));
    if (signal.aborted) return;
    const lanes = names.flatMap((name, order) => lanesOf(name, answers[order].rows, order));
    this.lanes.element.hidden = lanes.length === 0;
    if (lanes.length) this.lanes.show(lanes, first, end, format, this.spans.querySelector(".time"));
    const which = threads.length ? `system calls of the ${threads.length === 1 ? "thread" : "threads"} ${threads.join(", ")}` : "system calls of all threads, because the spans name none";
    const counts = names.map((name, order) => `${plural(answers[order].rows[0]?.of ?? 0)} of ${name}`);
    this.told.textContent = `${whole(rows.length)} ${rows.length === 1 ? "span" : "spans"}.` + (counts.length ? ` In their time: ${counts.join(", ")} (${which}; packets have no thread).` : "");
  }
}

/** One lane for packets, and one for each thread of system calls. */
function lanesOf(name, rows, order) {
  const groups = Map.groupBy(rows, ({ tid }) => tid ?? null);
  return [...groups].slice(0, 8).map(([thread, marks]) => ({
    name: thread === null ? name : `${name}, thread ${thread}`,
    colour: seriesColour(order + 5),
    marks: marks.map((row) => {
      const at = Number(row.since_ns);
      const length = Number(row.latency_ns ?? 0);
      const { since_ns, of, ts, ts_ns, addr, ...rest } = row;
      return { from: at - length, to: at, at, isOwn: false, text: Object.entries(rest).map(([key, value]) => `${key} ${value}`).join("  ") };
    }),
  }));
}

/** Spans in the order of a tree: each child after its parent, by time. */
function ordered(rows) {
  const known = new Set(rows.map(({ span_id }) => span_id));
  const children = Map.groupBy(rows, ({ parent_span_id }) => (known.has(parent_span_id) ? parent_span_id : null));
  const found = [];
  const visit = (id, depth) => {
    for (const row of children.get(id) ?? []) {
      children.set(id, children.get(id).filter((other) => other !== row));
      found.push({ row, depth });
      if (row.span_id !== null) visit(row.span_id, depth + 1);
    }
  };
  visit(null, 0);
  // A circle of parents has no root.
  for (const row of rows) if (!found.some((other) => other.row === row)) found.push({ row, depth: 0 });
  return found;
}

/** The thread of a span, from a field or from its attributes. */
function threadOf(row) {
  const given = THREADS.map((name) => row[name]).find((value) => value !== undefined && value !== null);
  if (given !== undefined) return Number(given);
  try {
    const attributes = JSON.parse(row.attributes ?? "{}");
    const thread = THREADS.map((name) => attributes[name]).find((value) => value !== undefined);
    return Number.isFinite(Number(thread)) && thread !== undefined ? Number(thread) : null;
  } catch {
    return null;
  }
}
