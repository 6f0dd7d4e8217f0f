//! The command line: one file for each subcommand, each an `Args` struct with a `run` that ends in an exit code.
//!
//! Exit codes are 0, 1 (it failed, in one sentence on standard error) and 2 (usage, from clap); `validate` adds 78.

mod export;
mod load;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Captures complete high-frequency telemetry into a Loom directory
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Load(load::Args),
    Export(export::Args),
}

impl Command {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Load(args) => args.run(),
            Command::Export(args) => args.run(),
        }
    }
}

/// Parses the arguments, runs the subcommand and reports its error as one sentence.
pub fn main() -> ExitCode {
    CommandLine::parse().command.run().unwrap_or_else(|error| {
        eprintln!("ingestd: {error:#}");
        ExitCode::FAILURE
    })
}
