//! Directories with a wrong byte, a wrong length or a wrong file.

mod every_byte;
mod forged_lengths;
mod strange_files;

use std::process::Command;

use anyhow::{Result, bail};
use loom_tests::machine;

/// The output of a command that has little memory, and whether it succeeds. It may fail, but it must not be killed, and must end within a
/// minute.
fn in_little_memory(words: &[&str]) -> Result<(bool, String)> {
    let limits = "ulimit -v 1000000; exec timeout -s KILL 60 \"$@\"";
    let mut command = Command::new("bash");
    command
        .args(["-c", limits, "bash"])
        .arg(machine::ingestd()?);
    let output = command.args(words).output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.code() {
        Some(code @ (0 | 1)) => Ok((code == 0, said)),
        _ => bail!("{words:?} ended with {}: {said}", output.status),
    }
}
