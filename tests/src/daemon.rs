//! A daemon for one test, and the other commands of `ingestd`.
//!
//! A `Daemon` is ready when its socket accepts connections, and is killed when the value is dropped.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loom_client::client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::machine;

/// How long to wait for a condition that must become true, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

pub struct Daemon {
    process: Child,
    dir: PathBuf,
}

impl Daemon {
    /// Starts `ingestd run` on `dir` with the TOML text `config`, and waits until its socket accepts connections.
    pub fn start(dir: &Path, config: &str) -> Result<Daemon> {
        let file = configuration(dir, config)?;
        let mut command = Command::new(machine::ingestd()?);
        command.arg("run").arg(dir).arg("--config").arg(&file);
        Daemon::spawn(command, dir)
    }

    /// Starts a command that runs a daemon on `dir`, and waits until its socket accepts connections.
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

    /// As `spawn`, for a daemon that may end before its socket accepts connections. Then it returns the exit status.
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

    /// A client of the daemon. It sends its records over the socket.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.dir)?)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid(), signal)?)
    }

    /// The process id.
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

    /// Stops the daemon as an operator does. Fails if the daemon does not report success.
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

    /// Kills the daemon with a signal that no program can handle.
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

/// Runs a command of `ingestd` and returns its standard output. Fails if the command does.
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

/// Repeats `condition` until it holds. Returns false if it does not hold within three minutes, however busy the machine is.
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
