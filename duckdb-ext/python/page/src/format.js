// Formats times, values and counts. The name of a field gives its unit: latency_ns, wire_bytes.

import { state } from "./state.js";

const UNITS = [
  [/(^|_)(ns|nanos)$/, 1e-9],
  [/(^|_)(us|micros)$/, 1e-6],
  [/(^|_)(ms|millis)$/, 1e-3],
];
const SECONDS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const SI = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];

const digits = (value) => String(Number(value.toPrecision(3)));
const RATES = [["s", 1], ["min", 60], ["h", 3600], ["day", 86_400]];

/** Returns the format of a field's values, by the unit in its name. */
export function valueFormat(field) {
  const scale = UNITS.find(([name]) => name.test(field))?.[1];
  if (scale) {
    return (value) => {
      const seconds = value * scale;
      const [unit, size] = SECONDS.find(([, least]) => Math.abs(seconds) >= least * 0.9995) ?? SECONDS.at(-1);
      return `${digits(seconds / size)} ${unit}`;
    };
  }
  return /(^|_)bytes$/.test(field) ? (value) => `${short(value)}${Math.abs(value) < 1000 ? " " : ""}B` : short;
}

/** Writes 12,345,678 as 12.3 M. */
export function short(value) {
  if (Math.abs(value) >= 1e15) return Number.isFinite(value) ? value.toExponential(2).replace("e+", "e") : value > 0 ? "∞" : "-∞";
  const [unit, size] = SI.find(([, least]) => Math.abs(value) >= least * 0.9995) ?? SI.at(-1);
  return `${digits(value / size)}${unit && ` ${unit}`}`;
}

/** Writes a rate under a title that says "per second". */
export const perSecond = (rate) => `${short(rate)}/s`;

/** Writes a rate per second, or per longer unit if it is small. */
export function perTime(rate) {
  const [unit, seconds] = RATES.find(([, seconds]) => rate * seconds >= 0.1) ?? (rate > 0 ? RATES.at(-1) : RATES[0]);
  return `${short(rate * seconds)}/${unit}`;
}

export const percent = (share) => `${share > 0 && share < 0.001 ? "< 0.1" : Number((share * 100).toPrecision(share < 0.1 ? 2 : 3))} %`;
export const whole = (value) => Number(value).toLocaleString("en-US");
/** A count of things whose plural has an s. */
export const several = (count, thing) => `${whole(count)} ${thing}${Number(count) === 1 ? "" : "s"}`;
export const plural = (records) => several(records, "record");

const parts = (options) => {
  const of = (timeZone) => new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options, timeZone });
  const zones = { local: of(undefined), utc: of("UTC") };
  return (us) => zones[state.utc ? "utc" : "local"].format(new Date(Math.floor(us / 1000)));
};
const clockOf = parts({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayOf = parts({ day: "numeric", month: "short" });
const yearOf = parts({ year: "numeric" });
const monthOf = parts({ month: "short", year: "numeric" });

const fraction = (us, places) => (places === 0 ? "" : `.${String(Math.floor(((us % 1e6) + 1e6) % 1e6)).padStart(6, "0").slice(0, places)}`);

/** The time of day with `places` digits of the second. */
const clock = (us, places = 0) => clockOf(us) + fraction(us, places);

/** The day, with its year if it is not this year. */
const day = (us) => (yearOf(us) === yearOf(Date.now() * 1000) ? dayOf(us) : `${dayOf(us)} ${yearOf(us)}`);

/** The time of day, with its date if it is not today. */
export const when = (us, places = 0) => (day(us) === day(Date.now() * 1000) ? clock(us, places) : `${day(us)}, ${clock(us, places)}`);

/** A span of time; the second date is written if it differs. */
export const fromTo = (from, to, places = 0) => `${when(from, places)} – ${day(from) === day(to) ? clock(to, places) : when(to, places)}`;

/** The digits of a second that distinguish times `us` apart. */
export const places = (us) => (us >= 1e6 ? 0 : us >= 1e3 ? 3 : 6);

const MONTH_US = 28 * 86_400e6;

/** A label of the time axis whose ticks are `step` apart. */
export const tick = (us, step) => (step >= MONTH_US ? monthOf(us) : clockOf(us) === "00:00:00" && step >= 1e6 ? dayOf(us) : step >= 60e6 ? clockOf(us).slice(0, 5) : clock(us, places(step)));

export function duration(us) {
  const seconds = us / 1e6;
  if (seconds < 1) return valueFormat("us")(us);
  if (seconds < 120) return `${digits(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${digits(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

export const zoneName = () => (state.utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone.split("/").at(-1).replaceAll("_", " "));
