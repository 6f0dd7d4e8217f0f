//! The command line: one file for each subcommand, with an `Args` struct whose `run` returns an exit code.
//!
//! Exit codes are 0, 1 (failure, with one sentence on standard error) and 2 (usage, from clap); `validate` adds 78.

mod archive;
mod catalog;
mod check;
mod complete;
mod declared;
mod demo;
mod explore;
mod export;
mod form;
mod generate;
mod index;
mod load;
mod pin;
mod pins;
mod progress;
mod record;
mod rule;
mod run;
mod serve;
mod service;
mod signals;
mod source;
mod state;
mod status;
mod stdout;
mod table;
mod top;
mod validate;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Record complete high-frequency telemetry in a Loom directory
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Demo(demo::Args),
    Load(load::Args),
    Record(record::Args),
    Explore(explore::Args),
    Serve(serve::Args),
    Export(export::Args),
    Archive(archive::Args),
    Source(source::Args),
    Index(index::Args),
    Rule(rule::Args),
    Pin(pin::Args),
    Pins(pins::Args),
    Status(status::Args),
    Top(top::Args),
    Check(check::Args),
    Validate(validate::Args),
    Generate(generate::Args),
    Confined(serve::ConfinedArgs),
}

impl Command {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(args) => args.run(),
            Command::Demo(args) => args.run(),
            Command::Load(args) => args.run(),
            Command::Record(args) => args.run(),
            Command::Explore(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Archive(args) => args.run(),
            Command::Source(args) => args.run(),
            Command::Index(args) => args.run(),
            Command::Rule(args) => args.run(),
            Command::Pin(args) => args.run(),
            Command::Pins(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Top(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Validate(args) => args.run(),
            Command::Generate(args) => args.run(),
            Command::Confined(args) => args.run(),
        }
    }
}

/// Parses the arguments, runs the subcommand and reports its error in one sentence.
pub fn main() -> ExitCode {
    complete::answer();
    CommandLine::parse().command.run().unwrap_or_else(|error| {
        stdout::complain(sentence(&error));
        ExitCode::FAILURE
    })
}

/// The definition of the command line for `clap`.
fn definition() -> clap::Command {
    CommandLine::command()
}

/// Joins an error and its causes; many errors already include their cause.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    /// The example lines of a command and its subcommands that are too long for a terminal: they would be wrapped, and could not be copied.
    fn wide_examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string);
        let lines = help.unwrap_or_default();
        let lines = lines.lines().filter(|line| line.starts_with(' '));
        let wide = lines.filter(|line| line.chars().count() > 80);
        let below = command.get_subcommands().flat_map(wide_examples);
        wide.map(str::to_owned).chain(below).collect()
    }

    #[test]
    fn an_example_fits_a_terminal_of_80_columns() {
        assert_eq!(wide_examples(&definition()), Vec::<String>::new());
    }

    #[test]
    fn a_cause_is_named_once() {
        let cause = std::io::Error::other("no space");
        let engine = loom_engine::Error::io("dir/LOCK", cause);
        let error = Err::<(), _>(engine)
            .context("it did not start")
            .unwrap_err();
        assert_eq!(sentence(&error), "it did not start: dir/LOCK: no space");
    }
}
