//! What subcommands print, where nobody may read it to its end.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

use anyhow::Context;

/// Prints a line. A reader that is gone has read enough.
pub(super) fn say(line: impl Display) -> anyhow::Result<()> {
    show(format_args!("{line}\n"))
}

/// Prints a line on standard error. If nobody can read it, as on a terminal that was closed, there is no other place for it.
pub(super) fn complain(line: impl Display) {
    let _ = writeln!(stderr(), "ingestd: {line}");
}

/// The same as `say`, of text that has its line breaks.
pub(super) fn show(text: impl Display) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
