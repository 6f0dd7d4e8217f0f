//! Two directories, a producer that pushes to one and then to the other, and a reader that takes a cut of both.

use std::convert::Infallible;

use loom_model::sync::Arc;
use loom_model::thread;

use crate::mutant::{Mutant, Swap};
use crate::protocol;
use crate::types::Address;
use crate::world::Word;

/// So many rounds does the reader look at most.
const ROUNDS: usize = 3;

/// One record in each directory, the first published before the second is pushed.
pub fn run<M: Mutant>() {
    let tails = Arc::new([0, 0].map(|tail| Word::new(Address(tail))));
    let producer = thread::spawn({
        let tails = Arc::clone(&tails);
        move || {
            let [one, other] = &*tails;
            one.announce::<M>(Address(1));
            other.announce::<M>(Address(1));
        }
    });
    let mut loads = [0, 1].map(|directory| {
        let tails = Arc::clone(&tails);
        move || Ok::<_, Infallible>(tails[directory].tail::<M>())
    });
    let (found, is_one_moment) = match M::SWAP {
        Swap::OneRound => (
            loads.iter_mut().filter_map(|load| load().ok()).collect(),
            true,
        ),
        _ => {
            let mut rounds = 2;
            let another = || {
                rounds += 1;
                rounds <= ROUNDS
            };
            let Ok(cut) = protocol::load_cut(&mut loads, another);
            cut
        }
    };
    assert!(
        !is_one_moment || found[1] <= found[0],
        "a cut holds no record without those that were published before it was pushed"
    );
    let Ok(()) = producer.join() else {
        panic!("the producer does not fail");
    };
}
