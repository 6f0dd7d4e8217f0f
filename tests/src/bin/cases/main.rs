//! The programs that `tests/cases` watches and compares with: a client that loads Redis, calls at a given rate, and a capture to a raw
//! file.
//!
//! Each prints `ready` when it is set up, and begins at the line `go` of its standard input, so that a script can start its captures in
//! between. It answers any other line with `ready` again, which gives a call to look for in a capture.

mod calls;
mod raw;
mod redis_load;

use std::io::{Write, stdin, stdout};

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
enum Program {
    /// Send requests to a Redis server, and push the latency of each through a ring
    RedisLoad(redis_load::Options),
    /// Make exactly so many system calls (getppid)
    Calls(calls::Options),
    /// Write what the kernel reports to a raw file, until standard input ends
    Raw(raw::Options),
}

fn main() -> Result<()> {
    match Program::parse() {
        Program::RedisLoad(options) => redis_load::run(&options),
        Program::Calls(options) => calls::run(&options),
        Program::Raw(options) => raw::run(&options),
    }
}

/// Prints `ready`, and waits for the line `go` or the end of standard input.
fn wait_for_the_start() -> Result<()> {
    let mut out = stdout();
    let mut line = String::new();
    loop {
        writeln!(out, "ready")?;
        out.flush()?;
        line.clear();
        if stdin().read_line(&mut line)? == 0 || line == "go\n" {
            return Ok(());
        }
    }
}
