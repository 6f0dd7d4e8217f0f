//! A program that this one runs: its lines, signals to it, and its end. `record` runs captures so, and `serve` runs DuckDB.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::Sender;
use loom_engine::Timestamp;
use loom_probes::end_with_starter;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::wall_clock;

/// A longer line comes in pieces. A record holds a piece even if none of its bytes is UTF-8: each then becomes the three bytes of U+FFFD.
const LINE_BYTES_MAX: u64 = 21 << 10;
/// The time that a program has to end once it is asked to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The pipe of a line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output = 1,
    Errors = 2,
}

/// A line of a program, without its end.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) stream: Stream,
    pub(crate) at: Timestamp,
    pub(crate) text: String,
}

/// A running program, in a process group of its own: Ctrl-C is for this process, which then ends the program. It ends when this value is
/// dropped.
pub(crate) struct Program {
    child: Child,
    is_over: bool,
}

impl Program {
    /// Starts a program, which the kernel kills if this thread ends before it; `purpose` follows its name in the message of an error.
    pub(crate) fn start(command: &mut Command, purpose: &str) -> anyhow::Result<Program> {
        command.process_group(0);
        end_with_starter(command);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .with_context(|| format!("cannot run '{name}'{purpose}"))?;
        Ok(Program {
            child,
            is_over: false,
        })
    }

    /// Its standard input, which is piped. Can be taken once.
    pub(crate) fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("the input is piped")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, which is piped. Can be taken once.
    pub(crate) fn output(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("the output is piped")
    }

    /// Its standard error, which is piped. Can be taken once.
    pub(crate) fn errors(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("the errors are piped")
    }

    /// Sends a signal to it and to the processes that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Until it has been waited for, its id is its own.
        if let Some(pid) = pid.filter(|_| !self.is_over) {
            // A group that has ended needs no signal.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// True if it has ended. Processes that it started may run on, and a signal still reaches them until this program is waited for.
    pub(crate) fn has_ended(&self) -> anyhow::Result<bool> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a program has no process id")?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(pid), options).context("cannot look after a program")?;
        Ok(status.is_some())
    }

    pub(crate) fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.child.wait().context("cannot wait for a program")?;
        self.is_over = true;
        Ok(status)
    }

    /// Waits for the end of a program that was asked to end. One that does not end in time is killed.
    pub(crate) fn wait_a_little(&mut self) -> anyhow::Result<ExitStatus> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().context("cannot wait for a program")? {
                self.is_over = true;
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.signal(Signal::KILL);
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::TERM);
            // Its status is of no use any more.
            let _ = self.wait_a_little();
        }
    }
}

/// Sends the lines of a pipe until it ends or nobody takes them.
pub(crate) fn send_lines(
    pipe: impl Read + Send + 'static,
    stream: Stream,
    sender: Sender<Line>,
) -> anyhow::Result<()> {
    let read = move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let mut piece = pipe.by_ref().take(LINE_BYTES_MAX);
            match piece.read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
            let line = Line {
                stream,
                at: wall_clock(),
                text: text.into_owned(),
            };
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("loom-lines".to_owned());
    thread.spawn(read).context("cannot start a thread")?;
    Ok(())
}
