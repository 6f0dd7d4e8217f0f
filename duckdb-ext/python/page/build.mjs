// Bundles the page into dist/, which the wheel takes: index.html, explorer.js, style.css, icon.svg, licenses.txt.
import { build } from "esbuild";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";

await rm("dist", { recursive: true, force: true });
await mkdir("dist", { recursive: true });
const { metafile } = await build({
  entryPoints: { explorer: "src/main.js", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  outdir: "dist",
  metafile: true,
});
for (const name of ["index.html", "icon.svg"]) await cp(`src/${name}`, `dist/${name}`);

// The licences of the packages in the bundle.
const held = new Set(Object.keys(metafile.inputs).flatMap((path) => /node_modules\/([^/]+)\//.exec(path)?.[1] ?? []));
const texts = await Promise.all([...held].sort().map(async (name) => `${name}\n\n${await readFile(`node_modules/${name}/LICENSE`, "utf8")}`));
await writeFile("dist/licenses.txt", texts.join("\n"));
