//! The command line: one file for each subcommand, each an `Args` struct with a `run` that ends in an exit code.
//!
//! Exit codes are 0, 1 (it failed, in one sentence on standard error) and 2 (usage, from clap); `validate` adds 78.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Captures complete high-frequency telemetry into a Loom directory
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {}

impl Command {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {}
    }
}

/// Parses the arguments, runs the subcommand and reports its error as one sentence.
pub fn main() -> ExitCode {
    let outcome = match CommandLine::parse().command {
        Some(command) => command.run(),
        None => Ok(ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("ingestd: {error:#}");
        ExitCode::FAILURE
    })
}
