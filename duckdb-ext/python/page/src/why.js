// The Why panel: in which fields the selected records differ from the others, the clearest first; a click adds the difference to the filter.

import { number, query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { percent, perTime, plural, valueFormat, whole } from "./format.js";
import { onlyValue } from "./grammar.js";
import * as sql from "./sql.js";

const SHOWN = 12;
/** The most of one field among the first, so that many bins of a counter do not hide the other fields. */
const SHOWN_OF_FIELD = 3;
// The bits of evidence from which on a difference is called clear; below that, chance alone may make it.
const CLEAR_BITS = 5;
const AGAINST = [["rest", "the rest of this time"], ["before", "the time before"]];

export class Why {
  /** `actions`: { filter(condition), list(source) }. */
  constructor(actions) {
    this.actions = actions;
    this.drawer = new SqlDrawer();
    this.against = null;
    this.choice = make("select", { ariaLabel: "Compare with", onchange: () => this.choose(this.choice.value) }, ...AGAINST.map(([value, text]) => make("option", { value }, text)));
    this.body = make("div", { className: "differences" });
    this.said = make("p", { className: "said" });
    this.element = make("aside", { className: "why" }, make("div", { className: "head" }, make("h3", {}, "Why?"), make("label", {}, "against ", this.choice), this.drawer.button), this.drawer.drawer, this.said, this.body);
  }

  choose(against) {
    this.against = against;
    this.show(this.asked);
  }

  /** Compares; `asked` is { dir, source, index, selection, filter, world, signal }. */
  async show(asked) {
    this.asked = asked;
    const { dir, source, index, selection, filter, signal } = asked;
    const isOfValues = index !== null && (selection.vMin !== null || selection.vMax !== null);
    const category = index !== null && !isOfValues && selection.where ? onlyValue(selection.where, asked.world.field(source, index)) : null;
    const hasValues = isOfValues || category !== null;
    const against = hasValues ? (this.against ?? "rest") : "before";
    // Filters hold for both sides, so the rest of a category needs bounds.
    const bounded = category !== null && against === "rest" ? { ...selection, vMin: category, vMax: category, where: null } : selection;
    this.choice.value = against;
    this.choice.disabled = !hasValues;
    const text = sql.why(dir, source, index, bounded, against, filter);
    this.drawer.show(text);
    this.element.dataset.state = "asking";
    this.said.textContent = "Comparing …";
    try {
      const { rows } = await query(text, signal);
      if (asked !== this.asked || signal.aborted) return;
      this.draw(rows, against);
      this.element.dataset.state = "shown";
    } catch (error) {
      if (signal.aborted || asked !== this.asked) return;
      this.said.textContent = error.message;
      this.body.replaceChildren();
      this.element.dataset.state = "failed";
    }
  }

  draw(rows, against) {
    const fields = rows.filter(({ kind }) => kind !== "source");
    const told = fields.filter(({ kind, filter }) => kind !== "others" && filter !== null);
    const clear = told.filter(({ score }) => number(score) >= CLEAR_BITS);
    const compared = new Set(fields.map(({ field }) => field)).size;
    const others = against === "rest" ? "the other records of this time" : "the records before";
    const separate = new Set(clear.map(({ field }) => field)).size;
    this.said.textContent =
      `${compared} ${compared === 1 ? "field was" : "fields were"} compared with ${others}. ` +
      (clear.length ? `${separate} ${separate === 1 ? "differs" : "differ"} by more than coincidence explains.` : "No difference is more than coincidence explains.");
    const rest = told.filter((row) => !clear.includes(row) && row.difference !== 0);
    const first = firstOf(clear);
    const more = [...clear.filter((row) => !first.includes(row)), ...rest];
    const list = make("div", { className: "list" }, ...first.map((row) => this.row(row)));
    const button = make("button", { type: "button", className: "quiet more", onclick: () => (list.append(...more.map((row) => this.row(row))), button.remove()) }, `${more.length} more, ${rest.length} of them may be coincidence`);
    this.body.replaceChildren(list, ...(more.length ? [button] : []), ...this.sources(rows.filter(({ kind }) => kind === "source")));
  }

  row({ field, kind, value, selected, other, selected_share, other_share, score, filter }) {
    const name = kind === "null" ? "NULL" : valueOf(field, kind, value);
    const bar = (share, name) => {
      const fill = make("i", { className: name });
      fill.style.width = `${Math.max(share * 100, share > 0 ? 1 : 0)}%`;
      return make("span", { className: "bar" }, fill);
    };
    const title = `${plural(selected)} of the selected, ${percent(selected_share)}; ${whole(other)} of the others, ${percent(other_share)}; ${Number(number(score).toPrecision(3))} bits of evidence\nClick to filter: ${filter}`;
    const isWeak = !(number(score) >= CLEAR_BITS);
    return make(
      "button",
      { type: "button", className: isWeak ? "difference weak" : "difference", title, onclick: () => this.actions.filter(filter) },
      make("span", { className: "name" }, field, make("b", {}, name)),
      make("span", { className: "bars" }, bar(selected_share, "selected"), bar(other_share, "other")),
      make("span", { className: "shares" }, make("b", {}, percent(selected_share)), make("small", {}, percent(other_share))),
    );
  }

  /** The other sources in the time of the selection, against the time before. */
  sources(rows) {
    if (rows.length === 0) return [];
    const cells = rows.map(({ source, field, rate, rate_before, p99, p99_before }) => {
      const write = field === null ? null : valueFormat(this.asked.world.field(source, field));
      const shown = (value, write) => (value === null ? "–" : write(number(value)));
      const pair = (now, before, write) => `${shown(now, write)} (${shown(before, write)})`;
      const quantile = p99 === null || write === null ? "–" : pair(p99, p99_before, write);
      return make("tr", { onclick: () => this.actions.list(source) }, make("td", { title: source }, source), make("td", { className: "number" }, pair(rate, rate_before, perTime)), make("td", { className: "number" }, quantile));
    });
    const head = make("tr", {}, ...["other source", "rate (before)", "p99 (before)"].map((name, at) => make("th", { className: at ? "number" : "" }, name)));
    return [make("table", { className: "sources" }, make("thead", {}, head), make("tbody", {}, ...cells))];
  }
}

/** The first rows, with only the clearest of each field. */
function firstOf(rows) {
  const counts = new Map();
  const isShown = ({ field }) => counts.set(field, (counts.get(field) ?? 0) + 1).get(field) <= SHOWN_OF_FIELD;
  return rows.filter(isShown).slice(0, SHOWN);
}

/** A bin or number with the unit of its field. */
function valueOf(field, kind, value) {
  const write = valueFormat(field);
  const bounds = kind === "bin" ? /^([[(])(.+), (.+)([)\]])$/.exec(value) : null;
  const one = (text) => (Number.isFinite(Number(text)) ? write(Number(text)) : text);
  return bounds ? `${one(bounds[2])} – ${one(bounds[3])}` : String(value);
}
