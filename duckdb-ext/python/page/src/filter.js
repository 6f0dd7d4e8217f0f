// The filter box: conditions as chips, a line to type more, completion, and the error of a filter that the server refuses.

import { completions, conditions, expected, joined } from "./grammar.js";
import { make } from "./dom.js";

const OFFERED_MOST = 12;

export class FilterBox {
  /**
   * `actions`: { check(filter), apply(filter), values(field) }; `check` returns a promise that fails with the reason why a filter is wrong,
   * and `values` one of literals that the field has.
   */
  constructor(section, actions) {
    this.actions = actions;
    this.filter = "";
    this.fields = [];
    this.offered = [];
    this.chosen = -1;
    this.chips = make("span", { className: "chips" });
    this.line = make("input", { type: "text", id: "filter-line", autocomplete: "off", spellcheck: false, placeholder: "Filter: field = value   ( / )" });
    this.list = make("ul", { id: "filter-list", className: "completion", hidden: true });
    this.problem = make("span", { className: "problem", hidden: true });
    const attributes = { role: "combobox", "aria-label": "Filter", "aria-controls": "filter-list", "aria-expanded": "false", "aria-autocomplete": "list" };
    for (const [name, value] of Object.entries(attributes)) this.line.setAttribute(name, value);
    this.list.setAttribute("role", "listbox");
    this.problem.setAttribute("role", "alert");
    section.prepend(this.chips, make("span", { className: "line" }, this.line, this.list));
    section.append(this.problem);
    this.line.addEventListener("input", () => this.offer());
    this.line.addEventListener("focus", () => this.offer());
    this.line.addEventListener("blur", () => this.close());
    this.line.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows the filter of the page, and completes with these fields. */
  show(filter, fields) {
    this.fields = fields;
    if (filter === this.filter && this.chips.childElementCount === conditions(filter).length) return;
    this.filter = filter;
    const parts = conditions(filter);
    this.chips.replaceChildren(...parts.map((part, at) => this.chip(part, at)));
  }

  /** Shows a filter that the server refused, to mend it. */
  refuse(filter, reason) {
    this.line.value = filter;
    this.fail(reason);
  }

  focus() {
    this.line.focus();
  }

  /** Adds a condition, unless the filter has it. */
  add(condition) {
    const parts = conditions(this.filter);
    if (!parts.includes(condition)) this.apply([...parts, condition]);
  }

  chip(part, at) {
    const rest = () => conditions(this.filter).filter((_, other) => other !== at);
    const edit = make("button", { type: "button", title: "Change this condition", onclick: () => this.edit(part, rest()) }, part);
    const remove = make("button", { type: "button", title: "Remove this condition", onclick: () => this.apply(rest()) }, "×");
    remove.setAttribute("aria-label", `Remove ${part}`);
    return make("span", { className: "chip" }, edit, remove);
  }

  /** Takes a condition out of the filter into the line. */
  async edit(part, rest) {
    await this.apply(rest);
    this.line.value = part;
    this.line.focus();
  }

  /** Applies conditions if the server accepts them; returns whether it did. */
  async apply(parts) {
    const filter = joined(parts);
    try {
      if (filter !== "") await this.actions.check(filter);
    } catch (error) {
      this.fail(error.message);
      return false;
    }
    this.problem.hidden = true;
    this.show(filter, this.fields);
    this.actions.apply(filter);
    return true;
  }

  fail(reason) {
    const plain = reason.replace(/^[A-Z][A-Za-z ]+ Error: /, "");
    this.problem.textContent = plain;
    this.problem.title = plain;
    this.problem.hidden = false;
  }

  async submit() {
    const typed = this.line.value.trim();
    this.close();
    if (typed === "") this.problem.hidden = true;
    else if (await this.apply([...conditions(this.filter), typed])) this.line.value = "";
  }

  async offer() {
    if (this.line.value === "") this.problem.hidden = true;
    const typed = this.line.value.slice(0, this.line.selectionStart);
    const what = expected(typed);
    const asked = (this.asked = {});
    if (what.what === "value") this.open(false);
    const values = what.what === "value" ? await this.actions.values(what.field).catch(() => []) : [];
    if (asked !== this.asked || document.activeElement !== this.line) return;
    this.from = what.from;
    this.offered = completions(what, this.fields, values).slice(0, OFFERED_MOST);
    this.chosen = -1;
    this.list.replaceChildren(
      ...this.offered.map((text, at) => {
        const item = make("li", { id: `filter-${at}`, onpointerdown: (event) => (event.preventDefault(), this.accept(at)) }, text.trim());
        item.setAttribute("role", "option");
        return item;
      }),
    );
    this.open(this.offered.length > 0);
  }

  open(isOpen) {
    this.list.hidden = !isOpen;
    this.line.setAttribute("aria-expanded", String(isOpen));
    this.line.removeAttribute("aria-activedescendant");
  }

  close() {
    this.asked = null;
    this.open(false);
  }

  choose(at) {
    this.chosen = (at + this.offered.length) % this.offered.length;
    [...this.list.children].forEach((item, other) => item.setAttribute("aria-selected", String(other === this.chosen)));
    this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
    this.line.setAttribute("aria-activedescendant", `filter-${this.chosen}`);
  }

  accept(at) {
    const caret = this.line.selectionStart;
    const text = this.offered[at];
    const after = this.line.value.slice(caret);
    const spaced = /[\s(]$/.test(text) ? text : `${text} `;
    this.line.value = this.line.value.slice(0, this.from) + spaced + after;
    const end = this.from + spaced.length;
    this.line.setSelectionRange(end, end);
    this.offer();
  }

  key(event) {
    const isOpen = !this.list.hidden;
    if (isOpen && (event.key === "ArrowDown" || event.key === "ArrowUp")) this.choose(event.key === "ArrowDown" ? this.chosen + 1 : Math.max(this.chosen, 0) - 1);
    else if (event.key === "Tab" && isOpen && this.line.value !== "" && !event.shiftKey) this.accept(Math.max(this.chosen, 0));
    else if (event.key === "Enter") isOpen && this.chosen >= 0 ? this.accept(this.chosen) : this.submit();
    else if (event.key === "Escape") isOpen ? this.close() : this.line.blur();
    else if (event.key === "Backspace" && this.line.value === "" && this.filter !== "") {
      const parts = conditions(this.filter);
      this.edit(parts.at(-1), parts.slice(0, -1));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

