//! The whole engine. `check`, `retention` and `writer` are scenarios of a user of the library. The others run it on a simulated disk: the
//! answers that a client got hold after its process was killed, after the power failed, and after a disk failed, at any operation of the
//! run.
//!
//! One run is remembered at each of its operations. From each, the state after a kill and the state after a loss of power are recovered and
//! compared with the client's own list (`judge`). `LOOM_SEED` repeats the random ones; `LOOM_SECONDS` sets how long they go on.

mod check;
mod client;
mod cold;
mod crashes;
mod encoders;
mod failures;
mod hard_units;
mod judge;
mod retention;
mod room;
mod writer;
