//! Runs `ingestd` as a user does: the output of a command, and its exit status. Everything here fails by panicking.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::machine;

/// The exit status and the output of a command.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn ingestd<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(machine::ingestd().unwrap());
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs a command of `ingestd` to its end.
pub fn run(words: &[&str]) -> Ended {
    Ended::of(&mut ingestd(words))
}

/// Starts a command, with its standard input open.
pub fn piped(command: &mut Command) -> (Child, ChildStdin) {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

pub fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A process that is killed when the value is dropped.
pub struct Running(pub Child);

impl Running {
    /// Starts a program and discards its output.
    pub fn start(command: &mut Command) -> Running {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        Running(quiet.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _already_ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Writes `key.pem` and `cert.pem` for a server on this machine.
pub fn certificate(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem";
    let name = "-subj /CN=loom -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let request = format!("req -x509 {key} -days 2 -out cert.pem {name}");
    let mut openssl = Command::new("openssl");
    Ended::of(openssl.args(request.split(' ')).current_dir(folder)).ends(0);
}

impl Ended {
    pub fn of(command: &mut Command) -> Ended {
        Ended::from(command.output().unwrap())
    }

    /// Waits for a process that [`piped`] started.
    pub fn once(child: Child) -> Ended {
        Ended::from(child.wait_with_output().unwrap())
    }

    /// Both outputs, one after the other.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{}", self.all());
        self
    }

    /// Checks the standard output.
    #[track_caller]
    pub fn prints(self, out: &str) -> Ended {
        assert_eq!(self.out, out, "{}", self.err);
        self
    }

    /// Checks that the output contains these words.
    #[track_caller]
    pub fn says(self, words: &str) -> Ended {
        says(&self.all(), words);
        self
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Checks that a text contains these words.
#[track_caller]
pub fn says(text: &str, words: &str) {
    assert!(text.contains(words), "'{words}' is not in: {text}");
}

/// A path as an argument of a command.
pub fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes a file and returns its path as an argument of a command.
pub fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    word(&path).to_owned()
}

/// Declares fields such as `n i64, s utf8?`; a question mark makes one nullable.
pub fn fields(of: &str) -> String {
    let field = |field: &str| {
        let (name, ty) = field.rsplit_once(' ').unwrap();
        let nullable = ty.ends_with('?');
        let ty = ty.trim_end_matches('?');
        format!("[[source.field]]\nname = '{name}'\ntype = '{ty}'\nnullable = {nullable}\n")
    };
    of.split(", ").map(field).collect()
}

/// Declares a source with such fields.
pub fn source(name: &str, of: &str) -> String {
    format!("[[source]]\nname = {name:?}\n{}", fields(of))
}

/// Writes the declaration of a source beside `path`, and returns the file's path, which `--fields` takes.
pub fn declared(path: &Path, name: &str, fields: &str) -> String {
    let toml = path.with_extension("toml");
    std::fs::write(&toml, source(name, fields)).unwrap();
    word(&toml).to_owned()
}

/// Repeats until there is an answer, for at most a minute, which is enough for anything.
#[track_caller]
pub fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(mut holds: impl FnMut() -> bool) {
    eventually(|| holds().then_some(()));
}

/// The rows of a table with one line each and bars between the cells.
pub fn table<const CELLS: usize>(text: &str) -> Vec<[&str; CELLS]> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells
                .try_into()
                .unwrap_or_else(|_| panic!("{CELLS} cells: {line}"))
        })
        .collect()
}
