// The flame graph of a selection: the samples of a profile in its time, as a tree of functions whose width is their share.

import { query } from "./api.js";
import { make, SqlDrawer } from "./dom.js";
import { percent, valueFormat, when, whole } from "./format.js";
import { fieldName, fieldsIn, joined, conditions } from "./grammar.js";
import * as sql from "./sql.js";

export const PROFILE = "profile";
export const STACKS = "stack";
/** The fields by which a condition on another source holds for the samples too. */
const OF_THREADS = ["pid", "tid", "comm", "cgroup"];
const ROW = 19;
const LEVELS = 60;
const NARROW_PX = 2;
const LABEL_PX = 28;
const KERNEL = "_[k]";

const samples = (count) => `${whole(count)} ${count === 1 ? "sample" : "samples"}`;
const MODES = {
  on: { name: "On CPU", all: "all threads on the processors", write: samples },
  off: { name: "Off CPU", all: "all threads off the processors", write: valueFormat("us") },
};

export class Flame {
  constructor() {
    this.drawer = new SqlDrawer();
    this.chosen = null;
    this.modes = make("div", { className: "segments", role: "group", ariaLabel: "Samples" }, ...Object.keys(MODES).map((mode) => make("button", { type: "button", onclick: () => this.choose(mode) })));
    this.find = make("input", { type: "search", placeholder: "Function", ariaLabel: "Find a function", spellcheck: false, oninput: () => this.draw() });
    this.found = make("span", { className: "found" });
    this.said = make("p", { className: "said" });
    this.graph = make("div", { className: "graph", role: "group", ariaLabel: "Flame graph: the arrows move, Enter zooms, Esc zooms out" });
    this.pointed = make("p", { className: "pointed" });
    this.pointed.setAttribute("role", "status");
    const head = make("div", { className: "head" }, make("h3", {}, "Flame graph"), this.modes, this.find, this.found, this.drawer.button);
    this.element = make("section", { className: "flame", hidden: true }, head, this.drawer.drawer, this.said, make("div", { className: "stacks" }, this.graph), this.pointed);
    const of = (event) => event.target.closest("button")?.frame;
    this.graph.addEventListener("click", (event) => of(event) && this.zoom(of(event)));
    for (const event of ["pointerover", "focusin"]) this.graph.addEventListener(event, (given) => of(given) && this.point(of(given)));
    this.graph.addEventListener("pointerleave", () => this.point(this.root));
    this.graph.addEventListener("keydown", (event) => of(event) && this.key(event, of(event)));
    addEventListener("resize", () => this.draw());
  }

  choose(mode) {
    this.chosen = mode;
    this.show(this.asked);
  }

  /** Shows the samples in the time of a selection, if the directory has a profile; `asked` is that of the Why panel. */
  async show(asked) {
    this.asked = asked;
    const { dir, selection, world, signal } = asked;
    const profile = world.sources.find(({ name, first_ts }) => name === PROFILE && first_ts !== null);
    this.element.hidden = !profile || !world.sources.some(({ name }) => name === STACKS);
    if (this.element.hidden) return;
    const filter = filterOf(asked);
    this.element.dataset.state = "asking";
    try {
      const { rows: [counts] } = await query(sql.samples(dir, selection, filter), signal);
      if (asked !== this.asked || signal.aborted) return;
      const held = { on: Number(counts.on_cpu), off: Number(counts.off_cpu) };
      const mode = this.chosen ?? (held.on === 0 && held.off > 0 ? "off" : "on");
      const text = sql.flame(dir, selection, filter, mode === "off");
      const { rows } = await query(text, signal);
      if (asked !== this.asked || signal.aborted) return;
      // A zoom survives a query again, but no other question.
      if (text !== this.text) this.path = [];
      Object.assign(this, { text, mode, tree: treeOf(rows, MODES[mode].all) });
      this.drawer.show(text);
      Object.keys(MODES).forEach((name, order) => {
        const button = this.modes.children[order];
        button.textContent = `${MODES[name].name}  ${whole(held[name])}`;
        button.setAttribute("aria-pressed", String(name === mode));
      });
      this.describe(held[mode], rows, filter, profile);
      this.element.dataset.mode = mode;
      this.element.dataset.state = "shown";
      this.draw();
    } catch (error) {
      if (signal.aborted || asked !== this.asked) return;
      this.tree = null;
      this.said.textContent = error.message;
      this.graph.replaceChildren();
      this.element.dataset.state = "failed";
    }
  }

  /** Says which samples the graph shows, and what it leaves out. */
  describe(held, rows, filter, { first_ts, last_ts }) {
    const whose = filter === "" ? "of all threads" : `with ${filter}`;
    const kind = this.mode === "off" ? `${whole(held)} ${held === 1 ? "time" : "times"} off the processors` : samples(held);
    if (held === 0) {
      const what = this.mode === "off" ? "No time off the processors" : "No sample";
      this.said.textContent = `${what} ${whose} lies in this time. The profile reaches from ${when(first_ts, 3)} to ${when(last_ts, 3)}.`;
      return;
    }
    const total = this.mode === "off" ? `, ${MODES.off.write(this.tree.total)} in all` : "";
    const cut = Number(rows[0].stacks) - rows.length;
    const share = cut > 0 ? ` The ${whole(rows.length)} largest of ${whole(rows[0].stacks)} stacks are drawn, ${percent(this.tree.drawn / this.tree.total)} of the whole.` : "";
    this.said.textContent = `${kind} ${whose}${total}.${share}`;
  }

  /** The frame to which the graph is zoomed. */
  get root() {
    return this.path.reduce((frame, name) => frame?.children.get(name), this.tree) ?? this.tree;
  }

  zoom(frame) {
    const hasFocus = this.graph.contains(document.activeElement);
    this.path = pathOf(frame);
    this.draw(hasFocus ? frame : null);
  }

  draw(focused = null) {
    if (!this.tree || this.element.hidden) return;
    const { root } = this;
    const width = this.graph.clientWidth;
    const wanted = this.find.value.trim().toLowerCase();
    const isFound = ({ name, parent }) => wanted !== "" && parent !== null && name.toLowerCase().includes(wanted);
    const above = [];
    for (let frame = root.parent; frame; frame = frame.parent) above.unshift(frame);
    const buttons = above.map((frame, level) => button(frame, level, 0, 1, width, isFound(frame), "above"));
    const depth = above.length;
    let deepest = depth;
    const left = new Set();
    const visit = (frame, level, from) => {
      const share = frame.total / root.total;
      if (share * width < NARROW_PX) return void left.add(`narrower than ${NARROW_PX} pixels`);
      if (level - depth >= LEVELS) return void left.add(`deeper than ${LEVELS} levels`);
      deepest = Math.max(deepest, level);
      buttons.push(button(frame, level, from, share, width, isFound(frame)));
      let at = from;
      for (const child of frame.children.values()) {
        visit(child, level + 1, at);
        at += child.total / root.total;
      }
    };
    if (root.total > 0) visit(root, depth, 0);
    this.graph.replaceChildren(...buttons);
    this.graph.style.height = `${buttons.length ? (deepest + 1) * ROW : 0}px`;
    const found = wanted === "" ? null : foundIn(root, isFound);
    this.found.textContent = found === null ? "" : `${percent(root.total ? found / root.total : 0)} found`;
    this.left = left.size ? `  ·  Functions ${[...left].join(" or ")} are not drawn; zoom to see them.` : "";
    const at = buttons.find(({ frame }) => frame === (focused ?? root));
    if (at) at.tabIndex = 0;
    if (focused) at?.focus();
    else this.point(root);
  }

  /** Writes the function under the pointer or the focus, its samples and their share. */
  point(frame) {
    if (!this.tree || this.tree.total === 0) return void (this.pointed.textContent = "");
    const { write } = MODES[this.mode];
    const { root } = this;
    const of = root === this.tree || frame === this.tree ? "" : ` (${percent(frame.total / root.total)} of ${root.name})`;
    const own = frame.own > 0 && frame.own < frame.total ? `, ${write(frame.own)} in itself` : "";
    this.pointed.textContent = `${frame.name}${frame.isKernel ? " (kernel)" : ""}  ${write(frame.total)}, ${percent(frame.total / this.tree.total)}${of}${own}${frame === root ? this.left : ""}`;
  }

  key(event, frame) {
    const beside = (step) => {
      const siblings = [...(frame.parent?.children.values() ?? [])];
      return siblings[siblings.indexOf(frame) + step];
    };
    const moves = { ArrowUp: () => frame.parent, ArrowDown: () => frame.children.values().next().value, ArrowLeft: () => beside(-1), ArrowRight: () => beside(1) };
    if (event.key === "Escape" && this.path.length > 0) this.zoom(this.root.parent);
    else if (event.key in moves) {
      const next = moves[event.key]();
      const shown = [...this.graph.children].find((other) => other.frame === next);
      if (shown) {
        event.target.tabIndex = -1;
        shown.tabIndex = 0;
        shown.focus();
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** The filter of the samples: all of it if the selection is one of the profile, otherwise the conditions on threads. */
function filterOf({ source, selection, filter, world }) {
  const applies = (names) => source === PROFILE || (names.length > 0 && names.every((name) => OF_THREADS.includes(name)));
  const bounds = [];
  if (selection.index !== undefined) {
    const field = world.field(source, selection.index);
    if (applies([field])) bounds.push(selection.vMin !== null && `${fieldName(field)} >= ${selection.vMin}`, selection.vMax !== null && `${fieldName(field)} <= ${selection.vMax}`);
  }
  const given = conditions(joined([filter, selection.where].filter(Boolean))).filter((condition) => applies(fieldsIn(condition)));
  return joined([...given, ...bounds.filter(Boolean)]);
}

/** The tree of folded stacks [{ stack, count, total }]; the largest child of a frame comes first. `drawn` is the sum of these stacks, `total` that of all. */
function treeOf(rows, name) {
  const frame = (name, parent) => ({ name: name.endsWith(KERNEL) ? name.slice(0, -KERNEL.length) : name, isKernel: name.endsWith(KERNEL), parent, total: 0, own: 0, children: new Map() });
  const root = frame(name, null);
  for (const { stack, count } of rows) {
    const samples = Number(count);
    let at = root;
    at.total += samples;
    for (const name of stack.split(";")) {
      if (!at.children.has(name)) at.children.set(name, frame(name, at));
      at = at.children.get(name);
      at.total += samples;
    }
    at.own += samples;
  }
  const sort = (frame) => {
    frame.children = new Map([...frame.children].sort(([a, one], [b, other]) => other.total - one.total || (a < b ? -1 : 1)));
    for (const child of frame.children.values()) sort(child);
  };
  sort(root);
  return Object.assign(root, { drawn: root.total, total: Number(rows[0]?.total ?? 0) });
}

/** The names from below the root to a frame, by which its parents know them. */
function pathOf(frame) {
  const path = [];
  for (; frame.parent; frame = frame.parent) path.unshift(frame.isKernel ? frame.name + KERNEL : frame.name);
  return path;
}

/** The samples of the found functions, each once. */
const foundIn = (frame, isFound) => (isFound(frame) ? frame.total : [...frame.children.values()].reduce((sum, child) => sum + foundIn(child, isFound), 0));

function button(frame, level, left, share, width, isFound, place = "") {
  const classes = [frame.isKernel && "kernel", frame.name === "[removed]" && "removed", isFound && "match", place].filter(Boolean);
  const made = make("button", { type: "button", tabIndex: -1, className: classes.join(" "), ariaLabel: frame.name }, share * width < LABEL_PX ? "" : frame.name);
  made.frame = frame;
  Object.assign(made.style, { left: `${left * 100}%`, width: `${share * 100}%`, top: `${level * ROW}px` });
  return made;
}
