//! The protocol of live reads and that of rings under a model checker: every interleaving, up to a bound on preemptions, and every value that
//! a load may return.
//!
//! `protocol` is the very file that the engine's logs go through, compiled over the checker's memory. [`world`] is what the logs do with it,
//! made as small as it can be: three logs, two blocks of one word each, a writer, a flusher and a reader. [`mutant`] weakens one step at a
//! time; the tests hold that the sound protocol never fails and that each mutant does, with the message of the invariant it breaks. [`cut`] is a
//! reader of two directories at once, and [`ring`] is the same for the ring between a producer and the daemon.

#[path = "../../src/log/staging/protocol.rs"]
mod protocol;
#[path = "../../src/types.rs"]
#[expect(
    dead_code,
    clippy::wrong_self_convention,
    reason = "the protocol needs two of the engine's types; the file is held to the engine's lints where it is at home"
)]
mod types;

#[path = "../../../ingestd/clients/rust/src/ring/protocol.rs"]
mod ring_protocol;

pub mod cut;
pub mod mutant;
pub mod ring;
pub mod world;

use std::any::Any;

/// The number of preemptions that a test explores: `LOOM_PREEMPTIONS`, or 2.
pub fn preemptions() -> usize {
    let given = std::env::var("LOOM_PREEMPTIONS").ok();
    given.map_or(2, |given| {
        given.parse().expect("LOOM_PREEMPTIONS is a number")
    })
}

/// The message that a run ended with.
pub fn message_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast::<&str>()
            .map(|text| text.to_string())
            .unwrap_or_default(),
    }
}

/// Runs `f` under the checker, with at most `preemptions` switches of threads that could have gone on.
pub fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom_model::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(f);
}
