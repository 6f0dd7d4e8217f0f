//! `ingestd serve`: one Loom directory, served by Quack under the user's DuckDB and supervised.
//!
//! `sql/host.sql` and `sql/serve.sql` contain the answers of a host and lock it down; they are part of the program. This code does the rest:
//! it chooses DuckDB, claims the port, limits the process, and starts a new server after one that ended.

// Preconditions of a server.
mod listen;
mod program;
mod token;
// A server, from its start to its end.
mod confined;
mod cpu;
mod host;
mod server;
// One server after the other.
mod supervise;

pub use confined::Confined;
pub use host::{Host, Options};
pub use listen::Listen;
pub use supervise::{State, supervise};
