// The keys of the page, and the dialog that lists them.

import { make } from "./dom.js";

const HELP = [
  ["/", "go to the filter"],
  ["← →", "move the window by half of its length"],
  ["+ −", "zoom in and out"],
  ["↓ ↑", "go through the listed records"],
  ["Enter", "open a record's neighbourhood"],
  ["C", "choose what to compare with"],
  ["L", "follow the newest records"],
  ["Esc", "close, or clear the selection"],
  ["?", "these keys"],
];
const TYPED = "input, select, textarea";

/** `actions`: { filter(), move(part), zoom(factor), records(), live(), compare(), clear() }. Without a modifier and outside of fields of text, keys call them. */
export function listenToKeys(dialog, actions) {
  const rows = HELP.map(([key, text]) => make("tr", {}, make("td", {}, make("kbd", {}, key)), make("td", {}, text)));
  const close = make("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.append(make("div", { className: "title" }, make("h2", {}, "Keys"), close), make("table", {}, make("tbody", {}, ...rows)));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const keys = {
    "/": actions.filter,
    ArrowLeft: () => actions.move(-0.5),
    ArrowRight: () => actions.move(0.5),
    "+": () => actions.zoom(0.5),
    "=": () => actions.zoom(0.5),
    "-": () => actions.zoom(2),
    ArrowDown: actions.records,
    c: actions.compare,
    C: actions.compare,
    l: actions.live,
    L: actions.live,
    Escape: actions.clear,
    "?": () => dialog.showModal(),
  };
  addEventListener("keydown", (event) => {
    const act = keys[event.key];
    const isTyped = event.target.matches?.(TYPED) && event.key !== "Escape";
    if (!act || isTyped || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (act() !== false) event.preventDefault();
  });
}
