//! The whole engine. `check`, `retention` and `writer` are scenarios of a user of the library; the others run it on a simulated disk: what a client was
//! answered holds after its process died, after the power was gone, and after a disk that failed, at any operation of the run.
//!
//! One run is remembered at each of its operations; from each, what a kill and what a loss of power leaves is recovered and held against the
//! client's own list (`judge`). `LOOM_SEED` repeats the random ones, `LOOM_SECONDS` lets them go on.

mod check;
mod client;
mod crashes;
mod failures;
mod judge;
mod retention;
mod room;
mod writer;
