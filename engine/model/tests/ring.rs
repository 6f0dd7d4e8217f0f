//! The ring's protocol holds, and stops holding as soon as one of its steps is weakened.

use std::panic::catch_unwind;

use loom_engine_model::ring::{self, Mutant};
use loom_engine_model::{check, message_of, preemptions};

// G5
#[test]
fn everything_pushed_is_taken_whole_and_in_order_in_every_interleaving() {
    check(preemptions(), ring::run::<ring::Sound>);
}

/// A word is used by both sides at once.
const AT_ONCE: &str = "Causality violation";

fn end_of<M: Mutant>() -> String {
    let preemptions = preemptions();
    let panic = catch_unwind(|| check(preemptions, ring::run::<M>));
    message_of(panic.expect_err("a weakened protocol must not pass"))
}

macro_rules! fails {
    ($($test:ident: $mutant:ident;)*) => {$(
        #[test]
        fn $test() {
            let end = end_of::<ring::$mutant>();
            assert!(end.contains(AT_ONCE), "{end}");
        }
    )*};
}

fails! {
    a_tail_is_stored_with_release: RelaxedTailStore;
    a_tail_is_loaded_with_acquire: RelaxedTailLoad;
    a_head_is_stored_with_release: RelaxedHeadStore;
    a_head_is_loaded_with_acquire: RelaxedHeadLoad;
    a_word_is_stored_before_its_tail: PublishBeforeWord;
    a_word_is_copied_before_its_place_is_given_back: GiveBackBeforeCopy;
    a_place_is_used_again_only_if_there_is_room: NoRoomNeeded;
}
