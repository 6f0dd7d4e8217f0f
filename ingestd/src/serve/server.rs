//! One server: DuckDB's process, its lines, and its CPU time. It ends when this value is dropped.

use std::process::ChildStdin;

use crossbeam_channel::{Receiver, bounded};

use super::cpu::Cpu;
use crate::child::{Line, Program, Stream, send_lines};

/// Lines that wait to be taken.
const LINES: usize = 64;
/// `sql/serve.sql` prints this when it listens.
const LISTENS: &str = "serve: quack:";

pub(super) struct Server {
    program: Program,
    /// It serves until its standard input ends.
    _input: ChildStdin,
    lines: Receiver<Line>,
    /// Read once a second.
    pub(super) cpu: Cpu,
}

/// A line of a server, by its meaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Listens,
    Note(String),
    Error(String),
}

impl Server {
    pub(super) fn new(mut program: Program, input: ChildStdin) -> anyhow::Result<Server> {
        let (sender, lines) = bounded(LINES);
        send_lines(program.output(), Stream::Output, sender.clone())?;
        send_lines(program.errors(), Stream::Errors, sender)?;
        let cpu = Cpu::of(program.id());
        Ok(Server {
            program,
            _input: input,
            lines,
            cpu,
        })
    }

    pub(super) fn lines(&self) -> Receiver<Line> {
        self.lines.clone()
    }

    /// Says how it ended. A server that closed its output and lives on is killed.
    pub(super) fn end(mut self) -> anyhow::Result<String> {
        Ok(self.program.wait_a_little()?.to_string())
    }
}

impl Said {
    pub(super) fn of(line: Line) -> Said {
        match line.stream {
            Stream::Errors => Said::Error(line.text),
            Stream::Output if line.text.starts_with(LISTENS) => Said::Listens,
            Stream::Output => Said::Note(line.text),
        }
    }
}

/// DuckDB's message without line breaks, and without its picture of the statement.
pub(super) fn in_one_line<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let lines = lines.into_iter().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("LINE "));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_duckdb_is_one_line_without_the_statement() {
        let said = "Binder Error:\ncannot open 'x'\n\nLINE 1: FROM x\n             ^";
        assert_eq!(in_one_line(said.lines()), "Binder Error: cannot open 'x'");
    }
}
