//! The daemon's configuration.
//!
//! Input: TOML.

use crate::{SOUND, label};
use loom_config::{ByteSize, Config, Span};

pub fn run(input: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(input) else {
        return "not UTF-8".to_owned();
    };
    // The one word at a time, for what no field takes.
    for word in text.split_ascii_whitespace() {
        if let Ok(size) = word.parse::<ByteSize>() {
            assert_eq!(size.to_string().parse(), Ok(size), "{word}");
            std::hint::black_box(size.approximately());
        }
        std::hint::black_box(word.parse::<Span>().is_ok());
    }
    match Config::parse(text) {
        Ok(config) => {
            std::hint::black_box(config.log.options());
            SOUND.to_owned()
        }
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)));
            label(&error)
        }
    }
}
