// Bundles the page into dist/, which the wheel takes: index.html, explorer.js, style.css, icon.svg.
import { build } from "esbuild";
import { cp, mkdir, rm } from "node:fs/promises";

await rm("dist", { recursive: true, force: true });
await mkdir("dist", { recursive: true });
await build({
  entryPoints: { explorer: "src/main.js", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  outdir: "dist",
  legalComments: "eof",
});
for (const name of ["index.html", "icon.svg"]) await cp(`src/${name}`, `dist/${name}`);
