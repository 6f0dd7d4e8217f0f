//! A target for one test: an HTTP server that answers each scrape as the test says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::duckdb::{Session, Version};
use tempfile::TempDir;

/// The answer to a scrape.
pub enum Answer {
    Text(String),
    OpenMetrics(String),
    /// Exactly these bytes, with the header.
    Raw(Vec<u8>),
    /// Lines without end.
    Endless,
    /// Nothing, for as long as the other side waits.
    Silent,
}

type Script = dyn Fn(u64, &str) -> Answer + Send + Sync;

pub struct Server {
    pub address: SocketAddr,
    requests: Arc<AtomicU64>,
    latest: Arc<Mutex<String>>,
    stopping: Arc<AtomicBool>,
}

impl Server {
    /// `script` is called with the number of the scrape, from 0, and the request.
    pub fn start(script: impl Fn(u64, &str) -> Answer + Send + Sync + 'static) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = Server {
            address: listener.local_addr()?,
            requests: Arc::default(),
            latest: Arc::default(),
            stopping: Arc::default(),
        };
        let script: Arc<Script> = Arc::new(script);
        let (requests, latest) = (Arc::clone(&server.requests), Arc::clone(&server.latest));
        let stopping = Arc::clone(&server.stopping);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                let latest = Arc::clone(&latest);
                // A client that disconnects is not an error here.
                std::thread::spawn(move || drop(serve(stream, &*script, &requests, &latest)));
            }
        });
        Ok(server)
    }

    /// The number of scrapes.
    pub fn scrapes(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The latest request.
    pub fn request(&self) -> String {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    mut stream: TcpStream,
    script: &Script,
    requests: &AtomicU64,
    latest: &Mutex<String>,
) -> Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        ensure!(stream.read(&mut byte)? == 1);
        request.extend(byte);
    }
    let request = String::from_utf8(request)?;
    latest
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone_from(&request);
    let nth = requests.fetch_add(1, Ordering::Relaxed);
    let head = |kind: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n")
    };
    match script(nth, &request) {
        Answer::Text(body) => {
            stream.write_all(format!("{}{body}", head("text/plain; version=0.0.4")).as_bytes())?
        }
        Answer::OpenMetrics(body) => {
            let head = head("application/openmetrics-text; version=1.0.0; charset=utf-8");
            stream.write_all(format!("{head}{body}").as_bytes())?;
        }
        Answer::Raw(bytes) => stream.write_all(&bytes)?,
        Answer::Endless => {
            stream.write_all(head("text/plain").as_bytes())?;
            for nth in 0.. {
                stream.write_all(format!("endless{{n=\"{nth}\"}} 1\n").as_bytes())?;
            }
        }
        Answer::Silent => {
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            let _ended = stream.read(&mut [0]);
        }
    }
    Ok(())
}

/// The body of an address's answer.
pub fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    // With version 1.0 the body ends with the connection.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.contains(" 200 "), "{path}: {reply}");
    Ok(body.to_owned())
}

/// A session with the macros.
pub fn session(version: Version) -> Result<Session> {
    Session::open(version)?.with_macros()
}

/// A path as text for SQL.
pub fn shown(dir: &Path) -> String {
    format!("'{}'", dir.display())
}

/// A directory of samples, in its own temporary folder.
pub struct Samples {
    _place: TempDir,
    pub dir: PathBuf,
}

impl Samples {
    pub fn new() -> Result<Samples> {
        let place = tempfile::tempdir()?;
        let dir = place.path().join("m.loom");
        Ok(Samples { _place: place, dir })
    }

    /// Runs a daemon until `scrapes` scrapes have succeeded.
    pub fn recorded(config: &str, scrapes: u64) -> Result<Samples> {
        let samples = Samples::new()?;
        samples.record(config, scrapes)?;
        Ok(samples)
    }

    /// Runs a daemon again until there are `scrapes` scrapes in all.
    pub fn record(&self, config: &str, scrapes: u64) -> Result<()> {
        let daemon = Daemon::start(&self.dir, config)?;
        scraped(&self.dir, scrapes)?;
        daemon.stop()
    }

    /// The answer of a version of DuckDB; `DIR` is the directory.
    pub fn value(&self, version: Version, sql: &str) -> Result<String> {
        session(version)?.value(&sql.replace("DIR", &shown(&self.dir)))
    }
}

/// Waits until `count` scrapes have succeeded and are stored. On a busy machine, a scrape that was answered may have timed out.
pub fn scraped(dir: &Path, count: u64) -> Result<()> {
    let mut session = session(Version::V2)?;
    let up = format!(
        "SELECT count(*) FROM loom_series({}, 'up') WHERE value = 1",
        shown(dir)
    );
    let mut found = String::new();
    let done = wait_until(|| {
        found = session.value(&up)?;
        Ok(found.parse::<u64>()? >= count)
    })?;
    ensure!(done, "{found} of {count} scrapes are stored");
    Ok(())
}
