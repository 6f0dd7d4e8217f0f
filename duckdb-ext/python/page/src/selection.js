// The panel below the pictures: the number of records in the selection, the other sources in its time, its records, why they differ, and the flame
// graph of its time.

import { keep, query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { duration, fromTo, perTime, places, plural, valueFormat, when, whole } from "./format.js";
import { Flame, PROFILE } from "./flame.js";
import { Records } from "./records.js";
import * as sql from "./sql.js";
import { state } from "./state.js";
import { Why } from "./why.js";

/** The columns that the lists of all sources have. */
const LISTED = ["ts", "ts_ns", "addr"];
/** The most letters of the chosen values in the title. */
const WHERE_MOST = 60;

export class Selection {
  /**
   * `actions`: { clear, zoom, list(source), sort(order), open(source, row), filter(condition), usual(selection), mayKeep(dir), kept }; `usual` returns the
   * usual rate of each source, and `kept` is called when a pin was written.
   */
  constructor(section, actions) {
    this.section = section;
    this.actions = actions;
    this.drawer = new SqlDrawer();
    this.count = make("strong");
    this.what = make("span", { className: "what" });
    this.keep = make("button", { type: "button", onclick: () => this.pin(), title: "Pin the records of all sources in this time, so that retention does not remove them" }, "Keep");
    this.kept = make("p", { className: "kept" });
    this.kept.setAttribute("role", "status");
    this.title = make(
      "div",
      { className: "title" },
      this.count,
      this.what,
      this.drawer.button,
      this.keep,
      make("button", { type: "button", onclick: actions.zoom }, "Zoom to selection"),
      make("button", { type: "button", onclick: actions.clear, title: "Clear the selection (Esc)" }, "Clear"),
    );
    this.around = make("div", { className: "around" });
    this.records = new Records({ sort: actions.sort, open: (row) => actions.open(this.listed, row) });
    this.foot = make("p", { className: "foot" });
    this.why = new Why({ filter: actions.filter, list: actions.list });
    this.flame = new Flame();
    this.body = make("div", { className: "body" }, make("div", { className: "records" }, this.records.element, this.foot), this.why.element);
    section.append(this.title, this.drawer.drawer, this.kept, this.around, this.body, this.flame.element);
  }

  /** Queries and shows the selection; `world` is the state of the directory. A later call cancels an earlier one. */
  async show(world) {
    this.asked?.abort();
    const { dir, source, index, selection, filter } = state;
    this.section.hidden = selection === null;
    if (selection === null) return;
    const asked = (this.asked = new AbortController());
    const listed = (this.listed = state.rows ?? source);
    const filters = { [source]: filter };
    const order = this.order(world, listed);
    const chosen = listed === source ? selection : { from: selection.from, to: selection.to };
    this.describe(world, chosen, listed);
    const gone = evicted(world, chosen);
    this.section.dataset.state = gone ? "evicted" : "asking";
    this.why.element.hidden = gone === "all";
    this.keep.hidden = gone === "all" || !world.alive || !this.actions.mayKeep(dir);
    const time = `${dir} ${selection.from} ${selection.to}`;
    if (time !== this.time) this.say("");
    this.time = time;
    if (gone === "all") {
      this.flame.element.hidden = true;
      this.count.textContent = "Removed";
      this.around.replaceChildren();
      this.records.clear();
      this.foot.textContent = `Retention has removed these records. The oldest record in the directory is from ${when(world.oldest, 3)}.`;
      this.foot.hidden = false;
      return;
    }
    const texts = { rows: sql.rows(dir, listed, chosen, filters[listed], order), count: sql.count(dir, listed, chosen, filters[listed]) };
    this.drawer.show(`${texts.rows};\n\n${texts.count};`);
    this.count.textContent = "Counting …";
    const others = world.sources.filter(({ name, first_ts }) => name !== source && first_ts !== null).map(({ name }) => name);
    const whenAsked = (promise, show, failed) => promise.then((answer) => asked.signal.aborted || show(answer)).catch((error) => asked.signal.aborted || failed(error));
    const rows = whenAsked(
      query(texts.rows, asked.signal),
      (answer) => this.records.list(answer, order, index !== null && listed === source ? world.field(source, index) : null),
      (error) => this.records.note(error.message, true),
    );
    const total = whenAsked(
      query(texts.count, asked.signal),
      ({ rows: [{ records }] }) => this.total(records, gone, world, order),
      (error) => {
        this.count.textContent = "Not counted";
        // The list usually has the same error.
        this.foot.textContent = this.records.element.textContent === error.message ? "" : error.message;
      },
    );
    const near = whenAsked(
      query(sql.around(dir, [source, ...others], selection, filters), asked.signal),
      (answer) => this.others(answer.rows, selection),
      (error) => this.around.replaceChildren(error.message),
    );
    // These may take longer than the list, so they wait for that.
    const explained = rows.then(() => {
      if (asked.signal.aborted) return undefined;
      // The samples of a profile are numbers of stacks, so its graph is above them.
      this.body[listed === PROFILE ? "before" : "after"](this.flame.element);
      const question = { dir, source, index: selection.index ?? null, selection, filter, world, signal: asked.signal };
      return Promise.all([this.why.show(question), this.flame.show(question)]);
    });
    await Promise.all([rows, total, near]);
    if (asked.signal.aborted) return;
    this.section.dataset.state = "shown";
    // The other rows take the longest to draw, and most are out of view.
    await explained.finally(() => asked.signal.aborted || this.records.fill());
  }

  /** Pins the time of the selection. */
  async pin() {
    const { time } = this;
    const say = (text, failed) => time === this.time && this.say(text, failed);
    this.keep.disabled = true;
    say("Writing the pin …");
    try {
      const { records, bytes, path, missing, removed } = await keep(state.dir, state.selection);
      const made = removed.length > 0 && `Older pins made room for it: ${removed.join(", ")}.`;
      say([`${plural(records)} of all sources are kept, ${valueFormat("bytes")(bytes)}: ${path}.`, missing && `Missing: ${missing}.`, made].filter(Boolean).join(" "));
      this.actions.kept();
    } catch (error) {
      say(`Not kept: ${error.message}`, true);
    }
    this.keep.disabled = false;
  }

  say(text, failed = false) {
    this.kept.textContent = text;
    this.kept.hidden = text === "";
    this.kept.dataset.failed = String(failed);
  }

  /** Moves the focus to the list. */
  focus() {
    this.records.focus();
  }

  /** The order of the rows: as chosen, or the greatest values of the index first; for a source whose index is not shown, by time. */
  order(world, listed) {
    if (state.sort) return state.sort;
    const own = listed === state.source && state.index !== null;
    return own ? { column: world.field(listed, state.index), down: true } : { column: "ts_ns", down: false };
  }

  describe(world, chosen, listed) {
    const span = chosen.to - chosen.from;
    const exact = Math.max(places(span / 100), 0);
    const parts = [listed, fromTo(chosen.from, chosen.to, exact), duration(span)];
    const { index, vMin, vMax, where } = chosen;
    if (index !== undefined && (!where || vMin !== null || vMax !== null)) {
      const value = valueFormat(world.field(state.source, index));
      const range = vMin === null ? (vMax === null ? "with any value" : `up to ${value(vMax)}`) : vMax === null ? `from ${value(vMin)}` : `${value(vMin)} – ${value(vMax)}`;
      parts.push(`${index} ${range}`);
    }
    if (where) parts.push(where.length > WHERE_MOST ? `${where.slice(0, WHERE_MOST)}…` : where);
    this.what.title = where ?? "";
    if (listed === state.source && state.filter !== "") parts.push(state.filter);
    this.what.textContent = parts.join("  ·  ");
  }

  total(records, gone, world, order) {
    this.count.textContent = plural(records);
    const kept = gone === "part" ? ` Retention has removed those before ${when(world.oldest, 3)}.` : "";
    const more = Number(records) > sql.ROWS ? `The first ${whole(sql.ROWS)} by ${order.column === "ts_ns" ? "time" : order.column} are listed. Narrow the selection or sort by another column to see others.` : "";
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
      const chip = make("button", { type: "button", onclick: () => this.actions.list(source) }, source, " ", make("small", {}, `${plural(records)}, ${perTime(rate)}${compared}`));
      chip.setAttribute("aria-pressed", String(listed));
      return chip;
    });
    this.around.replaceChildren(make("span", {}, state.filter === "" ? "All records in this time" : "In this time"), ...chips);
  }
}

/** Whether the list of a source has a column. The fields of Loom's own sources are not known here. */
export function hasColumn(world, source, column) {
  const fields = world.sources.find(({ name }) => name === source)?.fields;
  return fields === undefined || LISTED.includes(column) || `, ${fields}`.includes(`, ${column} `);
}

/** Returns "all" or "part" if retention has removed that of a window; null if it has removed nothing. */
export function evicted(world, { from, to }) {
  if (!world.evicts || world.oldest === null) return null;
  return to <= world.oldest ? "all" : from < world.oldest ? "part" : null;
}
