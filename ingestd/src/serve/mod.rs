//! `ingestd serve`: one Loom directory, served by Quack under the user's DuckDB and supervised.
//!
//! `sql/host.sql` and `sql/serve.sql` say what a host answers and lock it down; they are part of the program. Here stands what SQL cannot do:
//! which DuckDB, who has the port, limits of the process, and a new server for one that ended.

// What must hold before a server starts.
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
