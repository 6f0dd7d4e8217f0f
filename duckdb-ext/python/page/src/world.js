// The state of a directory: its sources, indexes and daemon, which each refresh queries again.

import { query } from "./api.js";
import { duration, when } from "./format.js";
import * as sql from "./sql.js";

const SILENT_US = 5e6;

/** Queries a directory. Throws if it cannot be read. */
export async function look(dir, signal) {
  const [sources, indexes, status] = await Promise.all(Object.values(sql.directory).map((ask) => query(ask(dir), signal).then(({ rows }) => rows)));
  const value = (key) => status.find((row) => row.key === key)?.value;
  const seen = sources.filter(({ name, first_ts }) => first_ts !== null && !name.startsWith("loom_"));
  const all = sources.filter(({ first_ts }) => first_ts !== null);
  const now = status[0]?.now ?? Date.now() * 1000;
  return {
    sources: sources.filter(({ name }) => !name.startsWith("loom_")),
    indexes: indexes.filter(({ value: field }) => field !== null),
    field: (source, index) => indexes.find((row) => row.source === source && row.index === index)?.value ?? index,
    alerts: sources.some(({ name }) => name === "loom_alerts"),
    oldest: all.length ? Math.min(...all.map(({ first_ts }) => first_ts)) : null,
    span: seen.length ? spanOf(seen, now) : null,
    evicts: Number(value("begin") ?? 0) > 0,
    alive: value("daemon") === "alive",
    heartbeat: value("heartbeat_ns") === undefined ? null : Number(BigInt(value("heartbeat_ns")) / 1000n),
    now,
  };
}

/** The span of the records, and the time that a window follows. It is not past now, so a sender with a fast clock hides no other. */
function spanOf(sources, now) {
  const from = Math.min(...sources.map(({ first_ts }) => first_ts));
  const to = Math.max(...sources.map(({ last_ts }) => last_ts)) + 1;
  return { from, to, newest: Math.max(from, Math.min(to, now)) };
}

/** The daemon's state in words, for the mark in the header. */
export function daemon(world) {
  const ago = (us) => duration(Math.max(world.now - us, 0));
  if (world.alive && world.heartbeat !== null && world.now - world.heartbeat > SILENT_US) {
    return { state: "gone", text: `daemon has not responded since ${when(world.heartbeat)}, ${ago(world.heartbeat)} ago` };
  }
  if (world.alive) return { state: "alive", text: "recording" };
  const last = world.span?.to;
  return { state: "gone", text: last ? `no daemon is running; last record ${when(last)}, ${ago(last)} ago` : "no daemon is running" };
}
