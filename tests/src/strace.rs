//! A daemon under `strace`, which counts its system calls, or fails, delays or kills it at one of them.
//!
//! The tracer is a grandchild, so the process that a test holds is the daemon itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::machine;

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

/// How often the thread that makes it most often makes each call of a trace, by name.
pub fn calls(trace: &str) -> BTreeMap<String, u64> {
    let mut of_threads: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((call, _)) = rest.trim_start().split_once('(') else {
            continue;
        };
        if call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !NOT_ITS_OWN.contains(&call)
        {
            *of_threads.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in of_threads {
        let entry = most.entry(call.to_owned()).or_default();
        *entry = count.max(*entry);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn calls_are_counted_by_the_thread_that_makes_most() {
        let trace = "7 write(1, \"a(b\", 3) = 3\n8 write(1, \"\", 0) = 0\n7 write(1 <unfinished ...>\n\
                     7 <... write resumed>) = 1\n8 fsync(3) = 0\n7 +++ killed by SIGKILL +++\n7 --- SIGTERM {} ---\n7 execve(\"x\") = 0\n";
        let found: Vec<_> = calls(trace).into_iter().collect();
        assert_eq!(found, [("fsync".to_owned(), 1), ("write".to_owned(), 2)]);
    }
}
