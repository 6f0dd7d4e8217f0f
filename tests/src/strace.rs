//! A process under `strace`, which counts its system calls, or fails, delays, stops or kills it at one of them.
//!
//! The tracer of a daemon is a grandchild, so the process that a test holds is the daemon itself. That of a process which runs already is a
//! `Tracer`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use tempfile::NamedTempFile;

use crate::machine;
use crate::seed::Seed;

/// Starting a process and ending it are no steps of the daemon's own.
const NOT_ITS_OWN: [&str; 3] = ["execve", "exit", "exit_group"];

/// One system call: the `nth` of its name that one of the threads makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    pub call: String,
    pub nth: u64,
}

impl Point {
    /// What makes `strace` kill the daemon there, before the call takes effect.
    pub fn kill(&self) -> Vec<String> {
        inject(&self.call, &format!("signal=SIGKILL:when={}", self.nth))
    }

    /// What makes `strace` stop the process there, when the call has taken effect and before the process knows.
    pub fn stop(&self) -> Vec<String> {
        inject(&self.call, &format!("signal=SIGSTOP:when={}", self.nth))
    }

    /// One of them: each call is as likely as another, however often it is made.
    pub fn draw(points: &[Point], seed: &mut Seed) -> Point {
        let mut calls: Vec<&str> = points.iter().map(|point| point.call.as_str()).collect();
        calls.sort_unstable();
        calls.dedup();
        let call = seed.pick(&calls);
        let of_call: Vec<&Point> = points.iter().filter(|point| point.call == call).collect();
        seed.pick(&of_call).clone()
    }
}

/// The options that do `what` to the calls.
pub fn inject(calls: &str, what: &str) -> Vec<String> {
    vec![
        "-e".to_owned(),
        format!("trace={calls}"),
        "-e".to_owned(),
        format!("inject={calls}:{what}"),
    ]
}

/// `ingestd run` on `dir` under `strace` with these options, which writes what it traces to `told`.
pub fn run(dir: &Path, config: &Path, options: &[String], told: &Path) -> Result<Command> {
    let mut command = Command::new("strace");
    command
        .args(["-D", "-f", "-qq", "-s", "256", "-o"])
        .arg(told)
        .args(options);
    command
        .arg(machine::ingestd()?)
        .arg("run")
        .arg(dir)
        .arg("--config")
        .arg(config);
    Ok(command)
}

/// The tracer of a process that runs already. It lets go of it when this is dropped.
pub struct Tracer {
    process: Child,
    told: NamedTempFile,
    _said: BufReader<ChildStderr>,
}

impl Tracer {
    /// When this returns, whatever `process` does next is traced with these options.
    pub fn attach(process: Pid, options: &[String]) -> Result<Tracer> {
        let told = NamedTempFile::new()?;
        let mut tracer = Command::new("strace")
            .args(["-f", "-y", "-s", "16", "-o"])
            .arg(told.path())
            .args(options)
            .args(["-p", &process.as_raw_nonzero().to_string()])
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(tracer.stderr.take().context("no standard error")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let tracer = Tracer {
            process: tracer,
            told,
            _said: said,
        };
        ensure!(line.contains("attached"), "{line}");
        Ok(tracer)
    }

    /// What it has written so far.
    pub fn trace(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.told.path())?)
    }

    /// Whether the process stands still where it was to be stopped.
    pub fn has_stopped(&self) -> Result<bool> {
        Ok(self.trace()?.contains("--- stopped by SIGSTOP ---"))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Asked to end while the process dies, it waits for ever; of a killed one the kernel lets go.
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// One line of a trace: the thread, the call, and all of what is told of it.
struct Call<'a> {
    thread: &'a str,
    name: &'a str,
    text: &'a str,
}

/// The calls that a trace tells of, each where it began.
fn each_call(trace: &str) -> impl Iterator<Item = Call<'_>> {
    trace.lines().filter_map(|line| {
        let (thread, rest) = line.split_once(' ')?;
        let text = rest.trim_start();
        let (name, _) = text.split_once('(')?;
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (is_name && !NOT_ITS_OWN.contains(&name)).then_some(Call { thread, name, text })
    })
}

/// How often the thread that makes it most often makes each call of a trace, by name.
pub fn calls(trace: &str) -> BTreeMap<String, u64> {
    let mut of_threads: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for call in each_call(trace) {
        *of_threads.entry((call.thread, call.name)).or_default() += 1;
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in of_threads {
        let entry = most.entry(call.to_owned()).or_default();
        *entry = count.max(*entry);
    }
    most
}

/// Those calls of a trace that concern one of `places`, each with what is told of it.
pub fn calls_at<'a>(trace: &'a str, places: &[&str]) -> Vec<(Point, &'a str)> {
    let mut of_threads: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut found = Vec::new();
    for call in each_call(trace) {
        let nth = of_threads.entry((call.thread, call.name)).or_default();
        *nth += 1;
        if places.iter().any(|place| call.text.contains(place)) {
            let point = Point {
                call: call.name.to_owned(),
                nth: *nth,
            };
            found.push((point, call.text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{calls, calls_at};

    #[test]
    fn calls_are_counted_by_the_thread_that_makes_most() {
        let trace = "7 write(1, \"a(b\", 3) = 3\n8 write(1, \"\", 0) = 0\n7 write(1 <unfinished ...>\n\
                     7 <... write resumed>) = 1\n8 fsync(3) = 0\n7 +++ killed by SIGKILL +++\n7 --- SIGTERM {} ---\n7 execve(\"x\") = 0\n";
        let found: Vec<_> = calls(trace).into_iter().collect();
        assert_eq!(found, [("fsync".to_owned(), 1), ("write".to_owned(), 2)]);
    }
    #[test]
    fn calls_at_a_place_are_counted_with_all_others_of_their_thread() {
        let trace = "7 pread64(3</else>, \"\", 8, 0) = 8\n8 pread64(4</here/x>, \"\", 8, 0) = 8\n\
                     7 pread64(4</here/x>, \"\", 8, 0) = 8\n7 --- stopped by SIGSTOP ---\n";
        let found = calls_at(trace, &["/here"]);
        let nths: Vec<u64> = found.iter().map(|(point, _)| point.nth).collect();
        assert_eq!(nths, [1, 2]);
        assert!(
            found
                .iter()
                .all(|(point, text)| text.starts_with(&point.call))
        );
    }
}
