//! The number of encoders changes no answer.

use crate::testkit::Scene;
use crate::testkit::asked::{aggregated, records, whole};
use crate::testkit::requests::{define, push_to};
use crate::testkit::scene::BLOCK;
use crate::types::Address;

const UNITS: u64 = 10;

#[test]
fn records_have_the_same_addresses_and_questions_the_same_answers_with_two_encoders() {
    let ask = |encoders: usize| {
        let mut scene = Scene::new();
        scene.options.log.encoders = encoders;
        scene.options.log.block_bytes = 16 * BLOCK;
        scene.options.log.segment_bytes = [16 * BLOCK; 3].into();
        let mut writer = scene.writer();
        let sources = define(&mut writer);
        let mut pushed = 0;
        while writer.position() < Address(UNITS * BLOCK) {
            push_to(&mut writer, &sources, pushed, pushed + 100);
            pushed += 100;
        }
        writer.sync_durable().unwrap();
        writer.close().unwrap();
        let snapshot = scene.snapshot();
        let ask = |source| {
            let known = snapshot.source_by_id(source).unwrap();
            let indexes = known.indexes.iter().map(|index| index.id);
            let of = |index| aggregated(&snapshot, &whole(source, index, &[0.5, 0.999]));
            // As text, because a sum that is not a number equals none.
            let aggregates: Vec<String> = indexes.map(|index| format!("{:?}", of(index))).collect();
            (records(&snapshot, source).unwrap(), aggregates)
        };
        sources.into_iter().map(ask).collect::<Vec<_>>()
    };
    for ((records, answers), (others, other_answers)) in ask(1).into_iter().zip(ask(2)) {
        assert!(records == others);
        assert_eq!(answers, other_answers);
    }
}
