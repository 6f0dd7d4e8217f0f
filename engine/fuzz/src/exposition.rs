//! The answers of Prometheus targets.
//!
//! Input: an answer, read in both formats.

use crate::answers::{Format, parse};
use crate::{SOUND, label};

pub fn run(input: &[u8]) -> String {
    let answers = [Format::Text, Format::OpenMetrics].map(|format| match parse(input, format) {
        Ok(samples) => {
            for sample in &samples {
                assert!(!sample.metric.is_empty());
                let names = sample.labels.iter().map(|(name, _)| *name);
                let mut names: Vec<&str> = names.collect();
                names.sort_unstable();
                assert!(
                    names.windows(2).all(|two| two.first() != two.last()),
                    "{names:?}"
                );
            }
            assert!(samples.len() <= input.len());
            SOUND.to_owned()
        }
        Err(error) => {
            let lines = 1 + input.iter().filter(|byte| **byte == b'\n').count();
            assert!((1..=lines).contains(&error.line), "{error}");
            label(&error)
        }
    });
    answers.join(" | ")
}
