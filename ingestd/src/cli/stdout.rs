//! The output of subcommands, to readers that may go away early.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

use anyhow::Context;

/// Prints a line. A closed pipe is no error, because its reader has read enough.
pub(super) fn say(line: impl Display) -> anyhow::Result<()> {
    show(format_args!("{line}\n"))
}

/// Prints a line on standard error. Errors are ignored, because there is no other place for the line.
pub(super) fn complain(line: impl Display) {
    let _ = writeln!(stderr(), "ingestd: {line}");
}

/// Prints text with its own line breaks, like `say`.
pub(super) fn show(text: impl Display) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
