//! The progress line on a terminal, for `load` and `check`.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress line from a template of `indicatif`, hidden if standard error is not a terminal. Its length is not known yet.
pub fn progress_bar(template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
