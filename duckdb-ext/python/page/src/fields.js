// The fields of a source: their types, and what they can be used for.

import { query } from "./api.js";
import { fieldName, literal } from "./grammar.js";
import * as sql from "./sql.js";

const OWN = ["source", "ts", "ts_ns", "addr", "dir"];
const UNIT = /(^|_)(ns|us|ms|s|nanos|micros|millis|seconds|bytes)$/;
const TEXTS = /^(char\[|utf8)/;

let held = { key: null, fields: [] };

/** Returns the fields of a source: [{ name, type, labelled, isCode, isFew, groups }]. `type` is that of the log, such as `u8`; `isFew` says that it has few values. */
export async function fieldsOf(dir, source, signal) {
  const key = JSON.stringify([dir, source.name, source.fields]);
  if (held.key === key) return held.fields;
  const { names, types } = await query(sql.columns(dir, source.name), signal);
  let at = 0;
  const fields = [];
  for (const [column, name] of names.entries()) {
    const found = source.fields.indexOf(`${name} `, at);
    if (OWN.includes(name) || found < 0) continue;
    at = found + name.length + 1;
    fields.push(field(name, /^[^ ,]+/.exec(source.fields.slice(at))[0], types[column]));
  }
  held = { key, fields };
  return fields;
}

function field(name, type, shown) {
  const labelled = /^[ui]\d+$/.test(type) && !/INT/.test(shown);
  const isSmall = /^[ui](8|16)$/.test(type);
  const isCode = labelled || type === "bool" || (isSmall && !UNIT.test(name));
  const isFew = type === "bool" || /^[ui]8$/.test(type) || (labelled && isSmall);
  return { name, type, labelled, isCode, isFew, groups: isCode || TEXTS.test(type) || (/^[ui]32$/.test(type) && !UNIT.test(name)) };
}

const values = new Map();

/** Returns the most frequent values of a field in recent records, as literals. They are asked for once. */
export function valuesOf(dir, source, field) {
  if (!field) return Promise.resolve([]);
  const text = sql.values(dir, source, field.name);
  if (!values.has(text)) {
    const asked = query(text).then(({ rows }) => rows.map(({ value }) => literalOf(field, value)));
    asked.catch(() => values.delete(text));
    values.set(text, asked);
  }
  return values.get(text);
}

/** Writes a value of a field as the grammar of filters has it: one of a field with labels as a text, because a label may look like a number. */
export function literalOf({ type, labelled }, value) {
  return /^[uif]\d+$/.test(type) && !labelled ? String(value) : literal(type === "bool" ? String(value) === "true" : value);
}

/** The condition that a field has a value; null is the value NULL. */
export const hasValue = (field, value) => (value === null ? `${fieldName(field.name)} IS NULL` : `${fieldName(field.name)} = ${literalOf(field, value)}`);
