//! The protocol holds, and stops holding as soon as one of its steps is weakened.
//!
//! `LOOM_PREEMPTIONS=3 cargo test --release --manifest-path engine/model/Cargo.toml` looks deeper; CI runs with 2.

use std::panic::catch_unwind;

use loom_engine_model::mutant::{self, Mutant};
use loom_engine_model::world::{self, Scene};
use loom_engine_model::{check, cut, message_of, preemptions};

/// The message that a mutant ends with.
fn end_of<M: Mutant>(scene: Scene) -> String {
    let preemptions = preemptions();
    let panic = catch_unwind(|| check(preemptions, move || world::run::<M>(scene)));
    message_of(panic.expect_err("a weakened protocol must not pass"))
}

// G5
// case Concurrency: snapshots around a block switch
#[test]
fn a_snapshot_is_exact_in_every_interleaving() {
    check(preemptions(), || {
        world::run::<mutant::Sound>(Scene::Summaries)
    });
}

// G5
#[test]
fn what_lies_past_the_last_summary_is_exact_in_every_interleaving() {
    check(preemptions(), || {
        world::run::<mutant::Sound>(Scene::PastSummaries)
    });
}

#[test]
fn what_is_durable_lies_below_the_tail_in_every_interleaving() {
    check(preemptions(), || {
        world::run::<mutant::Sound>(Scene::Durable)
    });
}

// case Concurrency: a cut of several directories
#[test]
fn a_cut_holds_what_its_records_follow_from_in_every_interleaving() {
    check(preemptions(), cut::run::<mutant::Sound>);
}

/// The message that a cut by a mutant ends with.
fn end_of_cut<M: Mutant>() -> String {
    let preemptions = preemptions();
    let panic = catch_unwind(|| check(preemptions, cut::run::<M>));
    message_of(panic.expect_err("a weakened protocol must not pass"))
}

// case Concurrency: a cut of several directories
#[test]
fn a_cut_takes_two_rounds_that_agree_and_words_that_order_what_follows() {
    for end in [
        end_of_cut::<mutant::OneRound>(),
        end_of_cut::<mutant::NoFenceAfterWord>(),
        end_of_cut::<mutant::RelaxedWordStore>(),
    ] {
        assert!(end.contains("a cut holds no record without"), "{end}");
    }
}

// G5
// case Concurrency: snapshots around a block switch
#[test]
fn what_units_hold_and_what_is_staged_is_exact_in_every_interleaving() {
    check(preemptions(), || world::run::<mutant::Sound>(Scene::Units));
}

const IN_UNIT: &str = "what the mark covers is in its unit";
const DURABLE: &str = "what is said to be durable lies below the tail";
const FLUSHED: &str = "the flusher takes only what was appended";
const STAGED: &str = "is what was published there";
const IN_SEGMENT: &str = "what the head gave up is in its segment";
const HELD: &str = "below the tail that is held";

macro_rules! fails {
    ($($test:ident: $mutant:ident in $scene:ident, $message:ident;)*) => {$(
        #[test]
        fn $test() {
            let end = end_of::<mutant::$mutant>(Scene::$scene);
            assert!(end.contains($message), "{end}");
        }
    )*};
}

fails! {
    marks_are_stored_with_release: RelaxedMarkStore in Summaries, IN_SEGMENT;
    marks_are_loaded_with_acquire: RelaxedMarkLoad in PastSummaries, FLUSHED;
    words_are_stored_with_release: RelaxedWordStore in Summaries, IN_SEGMENT;
    a_loaded_word_orders_what_follows: NoFenceAfterWord in Summaries, IN_SEGMENT;
    a_head_is_stored_before_the_bytes_that_follow: NoFenceAfterHead in Summaries, STAGED;
    a_copy_is_done_before_the_head_is_loaded: NoFenceAfterCopy in Summaries, STAGED;
    tails_are_stored_records_first: PublishTimesFirst in Summaries, HELD;
    // G5
    tails_are_loaded_times_first: LoadRecordsFirst in Summaries, HELD;
    bytes_come_before_their_tail: PublishBeforeBytes in Summaries, STAGED;
    a_block_is_released_when_its_write_has_returned: ReleaseBeforeWrite in Summaries, IN_SEGMENT;
    a_head_moves_before_its_block_is_reused: BytesBeforeHead in Summaries, STAGED;
    // G5
    a_unit_is_written_before_its_mark: EncodedBeforeWrite in Units, IN_UNIT;
    a_mark_orders_what_follows: NoFenceAfterWord in Units, IN_SEGMENT;
    a_mark_is_stored_with_release: RelaxedWordStore in Units, IN_SEGMENT;
    what_lies_above_the_mark_is_not_in_a_unit: UnitAboveMark in Units, IN_UNIT;
    a_block_is_released_when_its_unit_is_written: ReleaseBeforeWrite in Units, IN_SEGMENT;
    a_head_moves_before_the_block_of_a_unit_is_reused: BytesBeforeHead in Units, STAGED;
    // G5
    readers_are_told_of_a_tail_before_the_flusher: MarkBeforeTail in Durable, DURABLE;
    records_past_the_last_summary_are_judged_by_the_head: UnjudgedPastSummaries in PastSummaries, STAGED;
    their_copy_is_done_before_the_head_is_loaded: NoFenceAfterCopy in PastSummaries, STAGED;
    their_head_is_stored_before_the_bytes_that_follow: NoFenceAfterHead in PastSummaries, STAGED;
    their_words_are_stored_with_release: RelaxedWordStore in PastSummaries, IN_SEGMENT;
    their_block_is_released_when_its_write_has_returned: ReleaseBeforeWrite in PastSummaries, IN_SEGMENT;
}
