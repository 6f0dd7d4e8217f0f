// Alerts of rules and their pins: marks in every picture, and a table below the pictures.
//
// `alerts` are records of loom_alerts, the newest first; `pins` are rows of loom_pins, the newest first.

import { key, make, SqlDrawer } from "./dom.js";
import { fromTo, plural, short, when } from "./format.js";
import { colour, line, MARGIN } from "./frame.js";

const PIN_HEIGHT = 4;
/** The states of a rule's condition; the others are states of its action or pin. */
const FOUND = ["firing", "resolved", "failed"];

/** Draws marks in a picture: a line where a rule began to fire or failed, and a bar at the foot for each pinned span. */
export function drawAlerts(frame, context, alerts, pins) {
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, frame.right - MARGIN.left, frame.bottom - MARGIN.top);
  context.clip();
  context.fillStyle = colour("pin");
  for (const { from_ts, to_ts } of pins) {
    const from = frame.x(from_ts);
    context.fillRect(from, frame.bottom - PIN_HEIGHT, Math.max(frame.x(to_ts) - from, 2), PIN_HEIGHT);
  }
  context.strokeStyle = context.fillStyle = colour("alert");
  context.lineWidth = 1;
  for (const { ts, state } of alerts) {
    if (state !== "firing" && state !== "failed") continue;
    const x = Math.round(frame.x(ts)) + 0.5;
    line(context, x, MARGIN.top, x, frame.bottom);
    context.beginPath();
    context.moveTo(x - 4, MARGIN.top);
    context.lineTo(x + 4, MARGIN.top);
    context.lineTo(x, MARGIN.top + 6);
    context.fill();
  }
  context.restore();
}

/** Entries of the legend: the number of alerts and of pins in the window. */
export function alertKeys({ rows: alerts, error }, { rows: pins }) {
  if (error) return [make("span", {}, `alerts unknown: ${error}`)];
  const fired = alerts.filter(({ state }) => state === "firing").length;
  const failed = alerts.filter(({ state }) => state === "failed").length;
  const words = [fired > 0 && `${fired} ${fired === 1 ? "alert" : "alerts"}`, failed > 0 && `${failed} failed`].filter(Boolean).join(", ");
  return [words && key(colour("alert"), make("b", {}, words)), pins.length > 0 && key(colour("pin"), make("b", {}, `${pins.length} ${pins.length === 1 ? "pin" : "pins"}`))];
}

/** The table of a window's alerts and pins; hidden if there are none. */
export class Alerts {
  constructor(section) {
    this.section = section;
    this.drawer = new SqlDrawer();
    this.table = make("div", { className: "table" });
    section.append(make("div", { className: "title" }, make("h2", {}, "Alerts and pins"), this.drawer.button), this.drawer.drawer, this.table);
  }

  show(alerts, pins) {
    this.drawer.show(`${alerts.sql};\n\n${pins.sql}`);
    this.section.hidden = alerts.rows.length + pins.rows.length === 0;
    // A written pin has a row of its own.
    const told = alerts.rows.filter(({ state }) => state !== "pinning" && state !== "pinned");
    const rows = [...told.map(alertRow), ...pins.rows.map(pinRow)].sort((a, b) => b.at - a.at);
    const head = ["time", "rule", "what", "value", "threshold", ""].map((name) => make("th", { className: name === "value" || name === "threshold" ? "number" : "" }, name));
    this.table.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows.map(({ row }) => row))));
  }
}

function alertRow({ ts, rule, state, value, threshold, detail }) {
  const written = (number) => (number === null ? "–" : short(Number(number)));
  const cells = [
    make("td", {}, when(ts, 3)),
    make("td", {}, rule),
    make("td", { className: FOUND.includes(state) ? `state ${state}` : "" }, state),
    make("td", { className: "number" }, written(value)),
    make("td", { className: "number" }, written(threshold)),
    make("td", { title: detail ?? "" }, detail ?? ""),
  ];
  return { at: ts, row: make("tr", {}, ...cells) };
}

function pinRow({ rule, kept_by, from_ts, to_ts, path, records, missing }) {
  const about = [fromTo(from_ts, to_ts, 3), plural(records), missing, path].filter(Boolean).join("; ");
  const empty = () => make("td", { className: "number" }, "–");
  return { at: to_ts, row: make("tr", {}, make("td", {}, when(to_ts, 3)), make("td", {}, rule), make("td", { className: "state pin" }, kept_by === "hand" ? "pin by hand" : "pin"), empty(), empty(), make("td", { title: about }, about)) };
}
