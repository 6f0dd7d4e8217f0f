// The panel below the pictures: the number of records in the selection, the other sources in its time, and its first rows.

import { query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { duration, fromTo, perTime, places, plural, valueFormat, when, whole } from "./format.js";
import * as sql from "./sql.js";
import { state } from "./state.js";

const NS_PLACES = 3;

export class Selection {
  /** `actions`: { clear, zoom, list(source), usual(selection) }; the last returns the usual rate of each source. */
  constructor(section, actions) {
    this.section = section;
    this.actions = actions;
    this.drawer = new SqlDrawer();
    this.count = make("strong");
    this.what = make("span", { className: "what" });
    this.title = make(
      "div",
      { className: "title" },
      this.count,
      this.what,
      this.drawer.button,
      make("button", { type: "button", onclick: actions.zoom }, "Zoom to selection"),
      make("button", { type: "button", onclick: actions.clear, title: "Clear the selection (Esc)" }, "Clear"),
    );
    this.around = make("div", { className: "around" });
    this.table = make("div", { className: "table" });
    this.foot = make("p", { className: "foot" });
    section.append(this.title, this.drawer.drawer, this.around, this.table, this.foot);
  }

  /** Queries and shows the selection; `world` is the state of the directory. A later call cancels an earlier one. */
  async show(world) {
    this.asked?.abort();
    const { dir, source, selection } = state;
    this.section.hidden = selection === null;
    if (selection === null) return;
    const asked = (this.asked = new AbortController());
    const listed = state.rows ?? source;
    const chosen = listed === source ? selection : { from: selection.from, to: selection.to };
    this.describe(world, chosen, listed);
    const gone = evicted(world, chosen);
    this.section.dataset.state = gone ? "evicted" : "asking";
    if (gone === "all") {
      this.count.textContent = "Removed";
      this.around.replaceChildren();
      this.table.replaceChildren();
      this.foot.textContent = `Retention has removed these records. The oldest record in the directory is from ${when(world.oldest, 3)}.`;
      return;
    }
    this.drawer.show(`${sql.rows(dir, listed, chosen)};\n\n${sql.count(dir, listed, chosen)};`);
    this.count.textContent = "Counting …";
    const others = world.sources.filter(({ name }) => name !== source && !name.startsWith("loom_")).map(({ name }) => name);
    const whenAsked = (promise, show, failed) => promise.then((answer) => asked.signal.aborted || show(answer)).catch((error) => asked.signal.aborted || failed(error));
    const rows = whenAsked(
      query(sql.rows(dir, listed, chosen), asked.signal),
      (answer) => this.list(world, answer, selection.index, listed),
      (error) => this.table.replaceChildren(make("p", { className: "note bad" }, error.message)),
    );
    const total = whenAsked(
      query(sql.count(dir, listed, chosen), asked.signal),
      ({ rows: [{ records }] }) => this.total(records, gone, world),
      (error) => {
        this.count.textContent = "Not counted";
        // The list usually has the same error.
        this.foot.textContent = this.table.textContent === error.message ? "" : error.message;
      },
    );
    const near = whenAsked(
      query(sql.around(dir, [source, ...others], selection), asked.signal),
      (answer) => this.others(answer.rows, selection),
      (error) => this.around.replaceChildren(error.message),
    );
    await Promise.all([rows, total, near]);
    if (!asked.signal.aborted) this.section.dataset.state = "shown";
  }

  describe(world, chosen, listed) {
    const span = chosen.to - chosen.from;
    const exact = Math.max(places(span / 100), 0);
    const parts = [listed, fromTo(chosen.from, chosen.to, exact), duration(span)];
    if (chosen.index !== undefined) {
      const value = valueFormat(world.field(state.source, chosen.index));
      const { vMin, vMax } = chosen;
      const range = vMin === null ? (vMax === null ? "with any value" : `up to ${value(vMax)}`) : vMax === null ? `from ${value(vMin)}` : `${value(vMin)} – ${value(vMax)}`;
      parts.push(`${chosen.index} ${range}`);
    }
    this.what.textContent = parts.join("  ·  ");
  }

  total(records, gone, world) {
    this.count.textContent = plural(records);
    const kept = gone === "part" ? ` Retention has removed those before ${when(world.oldest, 3)}.` : "";
    const more = Number(records) > sql.ROWS ? `The first ${whole(sql.ROWS)} are listed, in the order of arrival. Narrow the selection to see others.` : "";
    this.foot.textContent = (more + kept).trim();
    this.foot.hidden = this.foot.textContent === "";
  }

  others(rows, selection) {
    const span = (selection.to - selection.from) / 1e6;
    const usualRate = this.actions.usual(selection);
    const chips = rows.map(({ source, records }) => {
      const usual = usualRate(source);
      const rate = Number(records) / span;
      const times = usual > 0 ? rate / usual : null;
      const compared = times === null ? "" : times >= 0.67 && times <= 1.5 ? ", the usual rate" : times < 0.05 ? ", far below the usual rate" : `, ${times >= 10 ? whole(Math.round(times)) : times.toFixed(1)} times the usual rate`;
      const listed = source === (state.rows ?? state.source);
      const chip = make("button", { type: "button", onclick: () => this.actions.list(source) }, source, make("small", {}, `${plural(records)}, ${perTime(rate)}${compared}`));
      chip.setAttribute("aria-pressed", String(listed));
      return chip;
    });
    this.around.replaceChildren(make("span", {}, "All records in this time"), ...chips);
  }

  list(world, { names, rows }, index, listed) {
    if (rows.length === 0) {
      this.table.replaceChildren(make("p", { className: "note" }, "There are no records in the selection."));
      return;
    }
    const shown = names.filter((name) => name !== "ts_ns");
    const valued = index && listed === state.source ? world.field(state.source, index) : null;
    const formats = new Map(shown.map((name) => [name, /_(ns|us|ms|bytes)$/.test(name) ? valueFormat(name) : null]));
    const numeric = new Set(shown.filter((name) => rows.every((row) => row[name] === null || typeof row[name] === "number") && name !== "ts"));
    const head = make("tr", {}, ...shown.map((name) => make("th", { className: numeric.has(name) ? "number" : "" }, name === "ts" ? "time" : name)));
    const body = rows.map((row) =>
      make(
        "tr",
        {},
        ...shown.map((name) => {
          if (name === "ts") return make("td", {}, when(row.ts, 6) + String(row.ts_ns).slice(-NS_PLACES));
          const value = row[name];
          if (value === null) return make("td", { className: `null ${numeric.has(name) ? "number" : ""}` }, "NULL");
          const format = formats.get(name);
          const text = typeof value === "number" && format ? format(value) : String(value);
          return make("td", { className: `${numeric.has(name) ? "number" : ""} ${name === valued ? "value" : ""}`.trim(), title: String(value) }, text);
        }),
      ),
    );
    this.table.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
    this.table.scrollTop = 0;
  }
}

/** Returns "all" or "part" if retention has removed that of a window; null if it has removed nothing. */
export function evicted(world, { from, to }) {
  if (!world.evicts || world.oldest === null) return null;
  return to <= world.oldest ? "all" : from < world.oldest ? "part" : null;
}
