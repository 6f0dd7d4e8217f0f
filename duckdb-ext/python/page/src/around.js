// The parts around the pictures: the header, the choosers, the notice, and the page that replaces the pictures if there is nothing to show.

import { make, options } from "./dom.js";
import { when, zoneName } from "./format.js";
import { evicted } from "./selection.js";
import { following, state } from "./state.js";
import { daemon } from "./world.js";

const CHOOSERS = ["window", "live", "zone", "filter", "beside"];

const by = (id) => document.getElementById(id);

/** Fills the header, the choosers and the notice; `misled` has sentences about parts of the address that cannot be used. */
export function showHeader(world, misled, fields) {
  const mark = daemon(world);
  for (const id of [...CHOOSERS, "daemon"]) by(id).hidden = false;
  Object.assign(by("daemon"), { textContent: mark.text }).dataset.state = mark.state;
  for (const button of by("window").children) button.setAttribute("aria-pressed", String(following() && Number(button.dataset.last) === state.last));
  by("live").textContent = following() ? (world.alive ? "● Live" : "● Following") : "▶ Go live";
  by("live").dataset.on = String(following() && world.alive);
  by("zone").textContent = zoneName();
  options(by("source"), world.sources.map(({ name }) => [name, name]), state.source);
  const own = world.indexes.filter(({ source }) => source === state.source);
  options(by("index"), own.map(({ index, value, filter }) => [index, `${index}${value === index ? "" : ` (${value}${filter ? ` where ${filter}` : ""})`}`]), state.index);
  options(by("group"), [["", "nothing"], ...fields.filter(({ groups }) => groups).map(({ name }) => [name, name])], state.group ?? "");
  by("index-label").hidden = own.length === 0;
  by("filter").hidden = (state.source ?? "").startsWith("metrics/");
  by("source-label").hidden = world.sources.length === 0;
  by("hint").hidden = own.length > 0 || (state.source ?? "").startsWith("metrics/");
  by("hint").textContent = `No index on ${state.source}, so only its rate is drawn. Add one for new records: ingestd index add ${state.dir} --source ${state.source} --index NAME --value FIELD`;
  const gone = state.span && world.span ? evicted(world, state.span) : null;
  const oldest = when(world.oldest ?? 0, 3);
  const removed = { all: `Retention has removed this window. The oldest record is from ${oldest}.`, part: `Retention has removed the records of this window before ${oldest}.` };
  notify([...misled, removed[gone]].filter(Boolean).join("\n"));
  document.title = `${state.source ?? "Loom"} · ${state.dir.split("/").at(-1)}`;
  document.documentElement.dataset.daemon = mark.state;
}

/** Shows a line above the pictures; empty text hides it. */
export function notify(text) {
  by("notice").textContent = text;
  by("notice").hidden = text === "";
}

/** Shows the part `main` or `empty` of the page. */
export function showOnly(id) {
  for (const each of ["main", "empty"]) by(each).hidden = each !== id;
}

/** Explains how to record into an empty directory. */
export function showEmpty(world) {
  showOnly("empty");
  const dir = state.dir;
  const start = world.alive ? [] : [make("p", {}, "Start a daemon:"), make("pre", {}, `ingestd run ${dir}`)];
  by("empty").replaceChildren(
    make("h1", {}, "No records yet"),
    make("p", {}, world.sources.length ? `Sources: ${world.sources.map(({ name }) => name).join(", ")}. The pictures appear with the first record.` : "The directory has no source. The pictures appear with the first record."),
    ...start,
    make("p", {}, "Load a file, or push from a program:"),
    make("pre", {}, `ingestd load ${dir} --source NAME FILE`),
  );
}

/** Shows why the directory cannot be read, or why there is nothing to show. */
export function showUnreadable(message, isDirectory = true) {
  showOnly("empty");
  for (const id of [...CHOOSERS, "source-label", "index-label", "notice", "daemon"]) by(id).hidden = true;
  const remedy = isDirectory ? [make("p", {}, "Start a daemon, which creates the Loom directory; the page then shows it:"), make("pre", {}, `ingestd run ${state.dir}`)] : [];
  by("empty").replaceChildren(make("h1", {}, isDirectory ? "Cannot read the directory" : "Nothing to show"), make("p", {}, message), ...remedy);
}
