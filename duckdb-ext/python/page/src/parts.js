// Reads the parts of an address, and explains those that it cannot read.

/** The time in microseconds since 1970 of a text such as 2026-03-01T10:00:00Z. */
function parseTime(text) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/.exec(text);
  if (!found) return undefined;
  const ms = Date.parse(`${found[1]}Z`);
  // 30 February would be a day in March.
  const exists = !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(found[1]);
  return !exists ? undefined : ms * 1000 + Number((found[2] ?? "").padEnd(6, "0"));
}

// Each reader returns undefined for a text that it cannot read.
export const time = { read: parseTime, what: "a time such as 2026-03-01T10:00:00Z" };
export const digits = { read: (text) => (/^\d{1,19}$/.test(text) ? text : undefined), what: "a whole number of at most 19 digits" };
export const number = (least = -Number.MAX_VALUE, most = Number.MAX_VALUE) => ({
  read: (text) => (text.trim() !== "" && Number(text) >= least && Number(text) <= most ? Number(text) : undefined),
  what: least === 0 ? `a number from 0 to ${most}` : "a number",
});
/** One of some values, or what another reader reads. */
export function oneOf(values, other = null) {
  const names = [...values, ...(other ? [other.what] : [])];
  const read = (text) => values.find((value) => String(value) === text) ?? other?.read(text);
  return { read, what: names.length === 1 ? names[0] : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}` };
}

export class Parts {
  /** `problems` gets a sentence for each part that is wrong, with what is used instead. */
  constructor(text) {
    this.given = new URLSearchParams(text);
    this.problems = [];
    this.known = new Set();
  }

  has(name) {
    this.known.add(name);
    return this.given.has(name);
  }

  /** The text of a part; null without one. */
  text(name) {
    this.known.add(name);
    return this.given.get(name);
  }

  /** The value of a part, or `none`. */
  value(name, { read, what }, none, instead) {
    if (!this.has(name)) return none;
    const value = read(this.text(name));
    if (value === undefined) this.wrong(name, `is not ${what}`, instead);
    return value ?? none;
  }

  /** Two times, the first before the other; null without them. */
  span(from, to, instead) {
    const before = this.problems.length;
    const [first, end] = [from, to].map((name) => this.value(name, time, null, instead));
    if (this.problems.length > before || !(this.has(from) || this.has(to))) return null;
    if (!this.needs(from, [to], instead) || !this.needs(to, [from], instead)) return null;
    if (first < end) return { from: first, to: end };
    this.wrong(from, `is not before '${to}=${this.text(to)}'`, instead);
    return null;
  }

  /** Whether the address has all that a part of it needs. */
  needs(name, others, instead) {
    const missing = this.has(name) ? others.filter((other) => !this.has(other)) : [];
    if (missing.length) this.wrong(name, `needs ${missing.map((other) => `'${other}'`).join(" and ")}`, instead);
    return missing.length === 0;
  }

  /** Reports the parts for which nobody asked. */
  rest() {
    for (const name of this.given.keys()) if (!this.known.has(name)) this.wrong(name, "is not a part that the page knows", "it is left out");
  }

  wrong(name, why, instead) {
    this.problems.push(`'${name}=${this.text(name)}' of the address ${why}, so ${instead}.`);
  }
}
