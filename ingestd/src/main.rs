//! The program `ingestd`: a thin entry to its command line.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
