// Queries Loom from Node.js and prints the answer: `node live.mjs INIT.sql SQL`.
//
// INIT.sql is the result of loom_duckdb.init_sql for this package's DuckDB; README.md one folder above explains how to write it. The answer is
// a line of names, then a line for each row, with tabs in between.

import { readFile } from "node:fs/promises";
import { argv, exit } from "node:process";
import { DuckDBInstance } from "@duckdb/node-api";

if (argv.length !== 4) {
  console.error("usage: node live.mjs INIT.sql SQL");
  exit(2);
}
const instance = await DuckDBInstance.create(":memory:", { allow_unsigned_extensions: "true" });
const connection = await instance.connect();
await connection.run(await readFile(argv[2], "utf8"));
const reader = await connection.runAndReadAll(argv[3]);
console.log(reader.columnNames().join("\t"));
for (const row of reader.getRows()) {
  console.log(row.map(String).join("\t"));
}
