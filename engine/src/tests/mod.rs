//! The whole engine on a simulated disk: what a client was answered holds after its process died, after the power was gone, and after a disk
//! that failed, at any operation of the run.
//!
//! One run is remembered at each of its operations; from each, what a kill and what a loss of power leaves is recovered and held against the
//! client's own list (`judge`). `LOOM_SEED` repeats the random ones, `LOOM_SECONDS` lets them go on.

mod client;
mod compactions;
mod crashes;
mod failures;
mod judge;
mod room;
