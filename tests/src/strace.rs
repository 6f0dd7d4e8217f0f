//! Runs a process under `strace`, which counts its system calls, or fails, delays, stops or kills it at one of them.
//!
//! The tracer of a daemon is a grandchild, so the process that a test holds is the daemon itself. A `Tracer` attaches to a process that
//! already runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use tempfile::NamedTempFile;

use crate::machine;
use crate::seed::Seed;

/// The start and the end of a process are not the daemon's own steps.
const NOT_ITS_OWN: [&str; 3] = ["execve", "exit", "exit_group"];

/// One system call: the `nth` call of this name that one of the threads makes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Point {
    pub call: String,
    /// If set, only calls that concern this file are counted. Threads that make the same calls use different files.
    pub file: Option<PathBuf>,
    pub nth: u64,
}

impl Point {
    /// Options with which `strace` kills the process there, before the call takes effect. Files are relative to `dir`.
    pub fn kill(&self, dir: &Path) -> Vec<String> {
        let mut options = inject(&self.call, &format!("signal=SIGKILL:when={}", self.nth));
        if let Some(file) = &self.file {
            options.extend(["-P".to_owned(), dir.join(file).display().to_string()]);
        }
        options
    }

    /// Options with which `strace` stops the process there, after the call has taken effect and before the process continues.
    pub fn stop(&self) -> Vec<String> {
        inject(&self.call, &format!("signal=SIGSTOP:when={}", self.nth))
    }

    /// Draws a point. Each pair of call and file is equally likely, however often the call is made.
    pub fn draw(points: &[Point], seed: &mut Seed) -> Point {
        let mut calls: Vec<_> = points.iter().map(Point::what).collect();
        calls.sort_unstable();
        calls.dedup();
        let what = seed.pick(&calls);
        let alike: Vec<&Point> = points.iter().filter(|point| point.what() == what).collect();
        seed.pick(&alike).clone()
    }

    fn what(&self) -> (&str, Option<&Path>) {
        (&self.call, self.file.as_deref())
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

/// `ingestd run` on `dir` under `strace` with these options. The trace is written to `told`.
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

/// The tracer of a process that already runs. It detaches when it is dropped.
pub struct Tracer {
    process: Child,
    told: NamedTempFile,
    _said: BufReader<ChildStderr>,
}

impl Tracer {
    /// Options that trace the calls that `reads_in` counts.
    pub const READS: [&str; 3] = ["-y", "-e", "trace=openat,read,pread64,getdents64"];

    /// Attaches to `process`. When this returns, all of its calls are traced with these options.
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

    /// The trace so far.
    pub fn trace(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.told.path())?)
    }

    /// Whether the process has stopped where it should.
    pub fn has_stopped(&self) -> Result<bool> {
        Ok(self.trace()?.contains("--- stopped by SIGSTOP ---"))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // An interrupted tracer waits for ever if the process dies meanwhile. The kernel detaches a killed tracer.
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// One line of a trace: the thread, the name of the call, and its whole text.
struct Call<'a> {
    thread: &'a str,
    name: &'a str,
    text: &'a str,
}

/// The calls of a trace, in the order in which they began.
fn each_call(trace: &str) -> impl Iterator<Item = Call<'_>> {
    trace.lines().filter_map(|line| {
        let (thread, rest) = line.split_once(' ')?;
        let text = rest.trim_start();
        let (name, _) = text.split_once('(')?;
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (is_name && !NOT_ITS_OWN.contains(&name)).then_some(Call { thread, name, text })
    })
}

/// Every call of a trace that shows the files of descriptors. A call that concerns a file in `dir` is counted among the calls on that file;
/// any other among all calls of its name.
pub fn points(trace: &str, dir: &Path) -> BTreeSet<Point> {
    let dir = format!("{}/", dir.display());
    let mut made: BTreeMap<(&str, &str, Option<&str>), u64> = BTreeMap::new();
    let mut points = BTreeSet::new();
    for call in each_call(trace) {
        let nth_of_all = nth(&mut made, (call.thread, call.name, None));
        let file = call
            .text
            .split_once(&dir)
            .and_then(|(_, file)| file.split(['"', '>', ' ']).next());
        let nth = match file {
            Some(_) => nth(&mut made, (call.thread, call.name, file)),
            None => nth_of_all,
        };
        points.insert(Point {
            call: call.name.to_owned(),
            file: file.map(PathBuf::from),
            nth,
        });
    }
    points
}

fn nth<K: Ord>(made: &mut BTreeMap<K, u64>, what: K) -> u64 {
    let count = made.entry(what).or_default();
    *count += 1;
    *count
}

/// The calls of a trace that concern one of `places`, each with its text.
pub fn calls_at<'a>(trace: &'a str, places: &[&str]) -> Vec<(Point, &'a str)> {
    let mut made = BTreeMap::new();
    let mut found = Vec::new();
    for call in each_call(trace) {
        let nth = nth(&mut made, (call.thread, call.name));
        if places.iter().any(|place| call.text.contains(place)) {
            let point = Point {
                call: call.name.to_owned(),
                file: None,
                nth,
            };
            found.push((point, call.text));
        }
    }
    found
}

/// The files that a process opened, and the bytes that it read, in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Opened files and folders.
    pub opened: u64,
    /// Bytes read from files.
    pub bytes: u64,
    /// Bytes of the names in folders, as the kernel lists them.
    pub name_bytes: u64,
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: u64| bytes.div_ceil(1024);
        let (read, names) = (kib(self.bytes), kib(self.name_bytes));
        write!(
            f,
            "{} opened, {read} KiB read, {names} KiB of names listed",
            self.opened
        )
    }
}

/// Counts the reads of files in `dir` in a trace made with the options `Tracer::READS`.
pub fn reads_in(trace: &str, dir: &Path) -> Reads {
    let dir = format!("{}/", dir.display());
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut reads = Reads::default();
    for (thread, text) in trace.lines().filter_map(|line| line.split_once(' ')) {
        let text = text.trim_start();
        let call = if text.ends_with("<unfinished ...>") {
            begun.insert(thread, text);
            continue;
        } else if text.starts_with("<...") {
            begun.remove(thread).unwrap_or_default()
        } else {
            text
        };
        let result = text.rsplit_once(" = ").map_or("", |(_, result)| result);
        // The name of the file follows a descriptor.
        let number = result.split(['<', ' ']).next().unwrap_or_default();
        let Ok(number) = number.parse::<u64>() else {
            continue;
        };
        let (name, arguments) = call.split_once('(').unwrap_or_default();
        let is_there = arguments.contains(&dir);
        match name {
            "openat" if is_there => reads.opened += 1,
            "read" | "pread64" if is_there => reads.bytes += number,
            "getdents64" if is_there => reads.name_bytes += number,
            _ => {}
        }
    }
    reads
}

/// Counts the reads of a command of `ingestd` in a directory.
pub fn reads_of(arguments: &[&OsStr], dir: &Path) -> Result<Reads> {
    let told = NamedTempFile::new()?;
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(told.path())
        .args(Tracer::READS)
        .arg(machine::ingestd()?)
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .context("starting strace")?;
    ensure!(status.success(), "{arguments:?} ended with {status}");
    Ok(reads_in(&std::fs::read_to_string(told.path())?, dir))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Reads, calls_at, points, reads_in};

    #[test]
    fn what_is_read_of_a_directory_is_counted_where_the_call_ends() {
        let trace = "7 openat(AT_FDCWD</>, \"/d/x/a\", O_RDONLY) = 3</d/x/a>\n7 openat(AT_FDCWD</>, \"/d/y\", O_RDONLY) = -1 ENOENT (No such file)\n\
                     8 pread64(3</d/x/a>, \"\", 4096, 0 <unfinished ...>\n7 read(4</else>, \"\", 64) = 64\n8 <... pread64 resumed>) = 4096\n\
                     7 getdents64(5</d/x>, 0x1 /* 3 entries */, 32768) = 96\n";
        let expected = Reads {
            opened: 1,
            bytes: 4096,
            name_bytes: 96,
        };
        assert_eq!(reads_in(trace, Path::new("/d")), expected);
    }

    #[test]
    fn calls_are_counted_by_their_thread_and_their_file() {
        let trace = "7 write(1</dev/null>, \"a(b\", 3) = 3\n8 write(1</dev/null>, \"\", 0) = 0\n7 write(1</dev/null> <unfinished ...>\n\
                     7 <... write resumed>) = 1\n8 fsync(3</d/x>) = 0\n7 +++ killed by SIGKILL +++\n7 --- SIGTERM {} ---\n7 execve(\"x\") = 0\n\
                     7 write(5</d/x (deleted)>, \"\", 0) = 0\n";
        let found: Vec<_> = points(trace, Path::new("/d"))
            .into_iter()
            .map(|point| (point.call, point.file.is_some(), point.nth))
            .collect();
        let write = || "write".to_owned();
        let expected = [
            ("fsync".to_owned(), true, 1),
            (write(), false, 1),
            (write(), false, 2),
            (write(), true, 1),
        ];
        assert_eq!(found, expected);
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
