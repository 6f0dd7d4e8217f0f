//! `GET /metrics`, `/livez` and `/readyz` on a loopback address, for monitoring. One request a connection, and a thread for each, so that
//! a silent client delays no other.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loom_engine::proven;

use super::exposition;
use super::message::{Inbox, Request};
use crate::threads::join;

/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Served at a time; one more is closed at once.
const CONNECTIONS_MAX: usize = 64;
const STACK_BYTES: usize = 512 << 10;
/// How long a client may take, all in all.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(50);

pub(super) struct Http {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Http {
    /// Serves from now on.
    pub(super) fn start(listener: TcpListener, inbox: Inbox) -> io::Result<Http> {
        let address = listener.local_addr()?;
        let listener = Arc::new(listener);
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("loom-http".to_owned())
            .spawn({
                let (listener, stopping) = (Arc::clone(&listener), Arc::clone(&stopping));
                move || {
                    let open = Arc::new(AtomicUsize::new(0));
                    for stream in listener.incoming() {
                        if stopping.load(Ordering::SeqCst) {
                            return;
                        }
                        match stream.and_then(|stream| admit(stream, &inbox, &open)) {
                            Ok(()) => {}
                            Err(error) => {
                                // Out of descriptors or threads, most likely: others may close soon.
                                tracing::warn!("cannot accept a request for metrics: {error}");
                                std::thread::sleep(RETRY);
                            }
                        }
                    }
                }
            })?;
        Ok(Http {
            address,
            listener,
            stopping,
            thread,
        })
    }

    /// Where it listens: the port that was given, or the one that was found for port 0.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let woken = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        woken.expect("a socket that listens can be shut down");
        join(self.thread);
    }
}

/// One of the connections that may be open, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Place> {
        let place = Place(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection in a thread that ends by itself; where too many are open, it is closed.
fn admit(stream: TcpStream, inbox: &Inbox, open: &Arc<AtomicUsize>) -> io::Result<()> {
    let Some(place) = Place::take(open) else {
        return Ok(());
    };
    let inbox = inbox.clone();
    std::thread::Builder::new()
        .name("loom-http-peer".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // A client that fails is its own affair.
            if let Err(error) = serve(stream, &inbox) {
                tracing::debug!("a request for metrics failed: {error}");
            }
            drop(place);
        })?;
    Ok(())
}

fn serve(mut stream: TcpStream, inbox: &Inbox) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let head = read_head(&mut stream, deadline)?;
    let (status, kind, body) = answer(&head, inbox);
    let head_only = head.starts_with("HEAD ");
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !head_only {
        reply.push_str(&body);
    }
    let mut rest = reply.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => rest = proven::at(rest, written?..),
        }
    }
    Ok(())
}

/// What is left of a client's time; an error when it is over.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// The request up to its empty line.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => head.extend_from_slice(proven::at(&piece, ..read?)),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Status, content type and body.
fn answer(head: &str, inbox: &Inbox) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain";
    let mut words = head.split_ascii_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if method != "GET" && method != "HEAD" {
        let body = "use GET or HEAD\n".to_owned();
        return ("405 Method Not Allowed", TEXT, body);
    }
    let failed = |why: &str| ("503 Service Unavailable", TEXT, format!("{why}\n"));
    let gone = "the writer thread has failed; start the daemon again";
    match target.split('?').next().unwrap_or("") {
        "/livez" if inbox.is_alive() => ("200 OK", TEXT, "alive\n".to_owned()),
        "/livez" => failed(gone),
        "/readyz" => match inbox.ask(Request::Status) {
            Ok(status) => match status.trouble {
                None => ("200 OK", TEXT, "ready\n".to_owned()),
                Some(trouble) => failed(&trouble),
            },
            Err(_) => failed(gone),
        },
        "/metrics" => match inbox.ask(Request::Status) {
            Ok(status) => (
                "200 OK",
                "text/plain; version=0.0.4",
                exposition::render(&status),
            ),
            Err(_) => failed(gone),
        },
        _ => {
            let body = "not found; use /metrics, /livez or /readyz\n".to_owned();
            ("404 Not Found", TEXT, body)
        }
    }
}
