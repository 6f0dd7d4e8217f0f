// The grammar of filters, as far as the filter box needs it: it splits a filter into its conditions, and completes what is typed.
//
// The server checks a filter; nothing here decides whether one is right.

const TOKEN = /\s*(?:('(?:[^']|'')*'?)|("(?:[^"]|"")*"?)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([\p{L}_][\p{L}\p{N}_]*)|(<>|!=|<=|>=|==|[=<>(),])|(\S))/uy;
const KINDS = ["text", "field", "number", "word", "symbol", "other"];
const KEYWORDS = ["and", "or", "not", "in", "is", "null", "between", "true", "false"];
const OPERATORS = ["=", "<>", ">", ">=", "<", "<=", "IN (", "BETWEEN ", "LIKE ", "IS NULL", "IS NOT NULL"];

/** The tokens of a text: [{ kind, text, from, to }]; a keyword has its word in small letters as `kind`. */
function tokens(given) {
  const found = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(given); match !== null; match = TOKEN.exec(given)) {
    const at = match.slice(1).findIndex((part) => part !== undefined);
    const text = match[at + 1];
    const word = KINDS[at] === "word" ? text.toLowerCase() : null;
    const kind = word === null ? KINDS[at] : KEYWORDS.includes(word) ? word : "field";
    found.push({ kind: kind === "symbol" ? text : kind, text, from: TOKEN.lastIndex - text.length, to: TOKEN.lastIndex });
  }
  return found;
}

/** Splits a filter at each AND outside of parentheses; one with an OR there is one condition. */
export function conditions(given) {
  const parts = [];
  let [depth, from, between] = [0, 0, false];
  for (const { kind, from: at, to } of tokens(given)) {
    if (kind === "(") depth += 1;
    if (kind === ")") depth -= 1;
    if (depth > 0) continue;
    if (kind === "or") return given.trim() ? [given.trim()] : [];
    if (kind === "between") between = true;
    if (kind !== "and") continue;
    if (!between) {
      parts.push(given.slice(from, at));
      from = to;
    }
    between = false;
  }
  parts.push(given.slice(from));
  return parts.map((part) => part.trim()).filter(Boolean);
}

const hasOr = (condition) => {
  let depth = 0;
  return tokens(condition).some(({ kind }) => {
    depth += kind === "(" ? 1 : kind === ")" ? -1 : 0;
    return depth === 0 && kind === "or";
  });
};

/** Joins conditions into a filter. */
export const joined = (parts) => (parts.length < 2 ? (parts[0] ?? "") : parts.map((part) => (hasOr(part) ? `(${part})` : part)).join(" AND "));

/** The words, numbers and signs of a condition. */
export const wordsIn = (condition) => new Set(tokens(condition).map(({ text }) => text));

const unquoted = (name) => (name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name);

/** The names of the fields in a condition. */
export const fieldsIn = (condition) => tokens(condition).filter(({ kind, text }) => kind === "field" && text.toLowerCase() !== "like").map(({ text }) => unquoted(text));

/** The literal of a condition `field IN (literal)`; null for every other condition. */
export function onlyValue(condition, field) {
  const [name, joint, , value, ...rest] = tokens(condition);
  return joint?.kind === "in" && unquoted(name.text) === field && rest.length === 1 ? value.text : null;
}

/** Writes the name of a field, in quotes if the grammar needs them. */
export const fieldName = (name) => (/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && !KEYWORDS.includes(name.toLowerCase()) ? name : `"${name.replaceAll('"', '""')}"`);

/** Writes a value as a literal. */
export const literal = (value) => (typeof value === "number" || typeof value === "boolean" ? String(value) : `'${String(value).replaceAll("'", "''")}'`);

/**
 * What may follow before the caret: { what: "field" | "operator" | "value" | "joint", prefix, from, field }. `prefix` is what is typed of it, from
 * the position `from`. A value belongs to `field`.
 */
export function expected(given) {
  const all = tokens(given);
  const last = all.at(-1);
  const typing = last && last.to === given.length && ["field", "text", "number", "in", "is", "between", "and", "or", "not", "true", "false", "other"].includes(last.kind) ? last : null;
  const before = typing ? all.slice(0, -1) : all;
  let [what, field, between, listing] = ["field", null, false, false];
  for (const { kind, text } of before) {
    if (kind === "field" && what === "operator" && text.toLowerCase() === "like") what = "value";
    else if (kind === "field") [what, field] = what === "value" ? ["joint", text] : ["operator", text];
    else if (["=", "==", "<>", "!=", "<", "<=", ">", ">="].includes(kind)) what = "value";
    else if (kind === "in") listing = true;
    else if (kind === "(") what = listing ? "value" : "field";
    else if (kind === ",") what = "value";
    else if (kind === ")") [what, listing] = ["joint", false];
    else if (kind === "between") [what, between] = ["value", true];
    else if (kind === "and" && between) [what, between] = ["value", false];
    else if (["and", "or"].includes(kind)) what = "field";
    else if (kind === "not") what = what === "operator" ? "operator" : "field";
    else if (["text", "number", "true", "false", "null"].includes(kind)) what = "joint";
  }
  return { what, field: field && unquoted(field), prefix: typing?.text ?? "", from: typing?.from ?? given.length };
}

/** The texts that complete what is expected; `values` are the literals of its field. */
export function completions({ what, prefix }, fields, values) {
  const typed = prefix.toLowerCase().replace(/^['"]/, "");
  const offered = { field: fields.map(fieldName), operator: OPERATORS, value: values, joint: ["AND ", "OR "] }[what];
  const plain = (text) => text.toLowerCase().replace(/^['"]/, "");
  const starts = offered.filter((text) => plain(text).startsWith(typed));
  const within = what === "field" || what === "value" ? offered.filter((text) => !starts.includes(text) && plain(text).includes(typed)) : [];
  return [...starts, ...within].filter((text) => text !== prefix);
}
