//! The line on a terminal that shows how far a command is. `load` and `check` show one.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A line in the words of `indicatif`; nothing where standard error is not a terminal. Its length is not known yet.
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
