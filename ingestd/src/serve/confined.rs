//! A program that replaces this process, with limits that its parent cannot give it from outside.
//!
//! `ingestd serve` starts DuckDB so, by the hidden subcommand `confined`: its memory has a limit, and it gets the rest of the CPU
//! behind the recording. Its starter ensures that it does not outlive its parent, as for every program.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, nice, setrlimit};

/// 10 of 19: others compute first.
const NICE: i32 = 10;

/// The arguments of `ingestd confined`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    /// The limit of private memory that can be written: heap and stacks. Reserved address space does not count.
    pub data_bytes: u64,
    pub command: Vec<OsString>,
}

impl Confined {
    /// The command that starts the program as a child.
    pub(super) fn as_child(&self) -> Command {
        // It works even if the program has been replaced on disk meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["confined", "--data", &self.data_bytes.to_string()])
            .arg("--")
            .args(&self.command);
        command
    }

    /// Becomes the program.
    pub fn exec(&self) -> anyhow::Result<Infallible> {
        let limit = Rlimit {
            current: Some(self.data_bytes),
            maximum: Some(self.data_bytes),
        };
        setrlimit(Resource::Data, limit).context("cannot limit the memory")?;
        nice(NICE).context("cannot lower the priority")?;
        let (program, args) = self.command.split_first().context("no program is given")?;
        let error = Command::new(program).args(args).exec();
        Err(error).with_context(|| format!("cannot run '{}'", OsStr::display(program)))
    }
}
