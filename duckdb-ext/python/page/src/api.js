// Calls the server, once for each query. The token, if there is one, is in the address of the page.

const token = new URLSearchParams(location.search).get("token");
const headers = { "content-type": "application/json", ...(token ? { "x-loom-token": token } : {}) };

/** The server has ended or cannot be reached. */
export class Unreachable extends Error {}

/** Returns the directories that the server reads, and those whose records it may pin. */
export async function about() {
  return ask("about", { headers });
}

/** Runs one SELECT; returns { names, types, rows, truncated, ms }. A row is an object with a property for each column. Times are microseconds since 1970. */
export async function query(sql, signal) {
  const { names, types, columns, truncated, ms } = await ask("query", { method: "POST", headers, signal, body: JSON.stringify({ sql }) });
  const rows = columns.length === 0 ? [] : columns[0].map((_, at) => Object.fromEntries(names.map((name, column) => [name, columns[column][at]])));
  return { names, types, rows, truncated, ms };
}

/** Pins the records of all sources in a time, and returns the daemon's answer. */
export async function keep(dir, { from, to }) {
  return ask("pin", { method: "POST", headers, body: JSON.stringify({ dir, from, to }) });
}

async function ask(what, request) {
  const response = await fetch(what, request).catch((error) => {
    throw request.signal?.aborted ? error : new Unreachable(error.message);
  });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

/** Reads a value of a float column, in which infinities and NaN are text. */
export const number = (value) => ({ inf: Infinity, "-inf": -Infinity, nan: NaN })[value] ?? Number(value);
