//! Questions that DuckDB asks of directories, and directories that it writes.

mod copy;
mod damage;
mod dashboards;
mod extension;
mod flame;
mod functions;
mod inputs;
mod processes;
mod pruning;
mod random_parquet;
mod random_worlds;
mod restarts;
mod rules;
mod scripts;
mod series;
mod sessions;
mod sql_page;
mod tables;
mod why;
mod words;
