//! What the tests of the whole system share: where the built programs stand, a daemon of their own, DuckDB sessions of both
//! versions that Loom serves, seeded randomness, and random questions.
//!
//! `machine` says what this machine has and what must be skipped for want of it; `daemon` runs daemons, `command` the other
//! commands of `ingestd`;
//! `duckdb` asks SQL of DuckDB 2 and of the command line of DuckDB 1; `seed` draws numbers that a printed seed repeats; `mixed`
//! and `world` make rows, `table` says how they look, `question` asks about them, and `answers` compares what comes back;
//! `script` cuts SQL into statements, `page` a Markdown page into its examples; `small` is a directory whose every byte can be damaged.
//! `probe` makes records that describe themselves, `producer` pushes them and remembers what it was told, `strace` fails and kills a daemon
//! at its system calls, `disk` is a file system to lose.

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
