//! The common parts of the tests of the whole system: the paths of the built programs, a daemon for one test, DuckDB sessions of both
//! versions that Loom serves, seeded random numbers, and random questions.
//!
//! `machine` knows the programs of this machine and skips tests whose programs are missing. `daemon` runs daemons, `command` the other
//! commands of `ingestd`. `duckdb` sends SQL to DuckDB 2 and to the command line of DuckDB 1. `seed` draws numbers that a printed seed
//! repeats. `mixed` and `world` generate rows, `table` describes them, `question` asks about them, and `answers` compares the results.
//! `script` cuts SQL into statements, and `page` a Markdown page into its examples. `small` is a directory whose every byte can be damaged.
//! `probe` generates records that describe themselves; `producer` pushes them and remembers the acknowledgements. `strace` fails and kills
//! a daemon at its system calls, and `disk` is a file system that can be lost.

pub mod answers;
pub mod command;
pub mod daemon;
pub mod disk;
pub mod duckdb;
pub mod machine;
pub mod mixed;
pub mod page;
pub mod probe;
pub mod producer;
pub mod question;
pub mod script;
pub mod seed;
pub mod small;
pub mod strace;
pub mod table;
pub mod world;
