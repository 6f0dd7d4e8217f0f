// The server: one call a query. The token, if there is one, stands in the page's own address.

const token = new URLSearchParams(location.search).get("token");
const headers = { "content-type": "application/json", ...(token ? { "x-loom-token": token } : {}) };

/** The server does not answer: it has ended, or cannot be reached. */
export class Unreachable extends Error {}

/** The directories that the server was given. */
export async function about() {
  return ask("about", { headers });
}

/** Runs one SELECT; returns { rows, truncated, ms }, a row being an object by column. Times are microseconds since 1970. */
export async function query(sql, signal) {
  const { names, columns, truncated, ms } = await ask("query", { method: "POST", headers, signal, body: JSON.stringify({ sql }) });
  const rows = columns.length === 0 ? [] : columns[0].map((_, at) => Object.fromEntries(names.map((name, column) => [name, columns[column][at]])));
  return { names, rows, truncated, ms };
}

async function ask(what, request) {
  const response = await fetch(what, request).catch((error) => {
    throw request.signal?.aborted ? error : new Unreachable(error.message);
  });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

/** A value of a float column: infinities and NaN come as text. */
export const number = (value) => ({ inf: Infinity, "-inf": -Infinity, nan: NaN })[value] ?? Number(value);
