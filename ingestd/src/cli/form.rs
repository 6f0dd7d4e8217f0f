//! The form of an answer: a text for people, or with `--json` one JSON document for programs.
//!
//! A key of a document keeps its meaning; a later version may add keys. A name ends with its unit, an unknown value is null, and a time is a text in
//! UTC.

use serde::Serialize;

use super::stdout::{say, show};

#[derive(Copy, Clone, clap::Args)]
pub(super) struct Form {
    /// Print one JSON document instead of a text
    #[arg(long)]
    pub(super) json: bool,
}

impl Form {
    /// Prints the document or the text.
    pub(super) fn answer<D: Serialize>(
        self,
        document: impl FnOnce() -> D,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self.json {
            true => say(serde_json::to_string(&document())?),
            false => show(text()),
        }
    }
}
