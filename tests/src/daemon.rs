//! A daemon of a test's own, and the other commands of `ingestd`.
//!
//! A `Daemon` is ready when its socket takes connections, and dies with the value that holds it.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loom_client::client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::machine;

/// How long a condition that must come true is waited for, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Daemon {
    process: Child,
    dir: PathBuf,
}

impl Daemon {
    /// Starts `ingestd run` on `dir` with the TOML text `config`, and waits until it can be spoken to.
    pub fn start(dir: &Path, config: &str) -> Result<Daemon> {
        let file = configuration(dir, config)?;
        let mut command = Command::new(machine::ingestd()?);
        command.arg("run").arg(dir).arg("--config").arg(&file);
        Daemon::spawn(command, dir)
    }

    /// Starts a command that runs a daemon on `dir`, and waits until it can be spoken to.
    pub fn spawn(command: Command, dir: &Path) -> Result<Daemon> {
        match Daemon::spawn_or_end(command, dir)? {
            Ok(daemon) => Ok(daemon),
            Err(_ended) => bail!(
                "the daemon did not open {}: {}",
                dir.join("ingest.sock").display(),
                std::fs::read_to_string(dir.with_extension("log")).unwrap_or_default()
            ),
        }
    }

    /// The same, of a daemon that may end before it can be spoken to: then how it ended.
    pub fn spawn_or_end(mut command: Command, dir: &Path) -> Result<Result<Daemon, ExitStatus>> {
        let log = dir.with_extension("log");
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(&log)?,
            )
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let mut daemon = Daemon {
            process,
            dir: dir.to_owned(),
        };
        let socket = daemon.socket();
        let ready = wait_until(|| {
            Ok(UnixStream::connect(&socket).is_ok() || daemon.process.try_wait()?.is_some())
        })?;
        match daemon.process.try_wait()? {
            Some(ended) => Ok(Err(ended)),
            None if ready => Ok(Ok(daemon)),
            None => bail!("the daemon does not open {}", socket.display()),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A client of it, which sends what it is given over the socket.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.dir)?)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid(), signal)?)
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("ingest.sock")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends `signal` and waits for the end.
    pub fn end(self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        self.wait()
    }

    pub fn wait(mut self) -> Result<ExitStatus> {
        Ok(self.process.wait()?)
    }

    /// The orderly end, as an operator asks for it; fails where the daemon does not report success.
    pub fn stop(self) -> Result<()> {
        let log = self.dir.with_extension("log");
        let status = self.end(Signal::TERM)?;
        ensure!(
            status.success(),
            "the daemon ended with {status}: {}",
            std::fs::read_to_string(log)?
        );
        Ok(())
    }

    /// The death that no program can prepare for.
    pub fn kill(self) -> Result<()> {
        self.end(Signal::KILL).map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// Writes the configuration of the daemon on `dir` into a file beside it.
pub fn configuration(dir: &Path, config: &str) -> Result<PathBuf> {
    let file = dir.with_extension("toml");
    std::fs::write(&file, config)?;
    Ok(file)
}

/// Runs a command of `ingestd` and gives its standard output; fails where it does not succeed.
pub fn ingestd<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<String> {
    let mut command = Command::new(machine::ingestd()?);
    command.args(arguments);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output()?;
    let stderr = String::from_utf8_lossy(&stderr);
    ensure!(
        status.success(),
        "{command:?} ended with {status}: {stderr}"
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Asks `condition` again and again until it holds; false where it does not in a minute.
pub fn wait_until(mut condition: impl FnMut() -> Result<bool>) -> Result<bool> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if condition()? {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}
