//! `GET /metrics`, `/livez` and `/readyz` on a loopback address, for monitoring. One request a connection, one connection at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::exposition;
use super::message::Inbox;

/// The longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take, all in all.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(50);

pub(super) struct Http {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Http {
    /// Serves from now on.
    pub(super) fn start(listener: TcpListener, inbox: Inbox) -> io::Result<Http> {
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("loom-http".to_owned())
            .spawn({
                let stopping = Arc::clone(&stopping);
                move || {
                    for stream in listener.incoming() {
                        if stopping.load(Ordering::SeqCst) {
                            return;
                        }
                        match stream.map(|stream| serve(stream, &inbox)) {
                            Ok(Ok(())) => {}
                            // A client that fails is its own affair.
                            Ok(Err(error)) => {
                                tracing::debug!("a request for metrics failed: {error}")
                            }
                            Err(error) => {
                                // Out of descriptors, most likely: others may close soon.
                                tracing::warn!(
                                    "a request for metrics could not be accepted: {error}"
                                );
                                std::thread::sleep(RETRY);
                            }
                        }
                    }
                }
            })?;
        Ok(Http {
            address,
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
        // Wakes the thread, which then sees that it is to end.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
        let _ = self.thread.join();
    }
}

fn serve(mut stream: TcpStream, inbox: &Inbox) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    let (status, kind, body) = answer(&head, inbox);
    let head_only = head.starts_with("HEAD ");
    let header = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(header.as_bytes())?;
    if !head_only {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// The request up to its empty line.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => head.extend_from_slice(piece.get(..bytes).unwrap_or_default()),
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
        let body = "only GET is answered here\n".to_owned();
        return ("405 Method Not Allowed", TEXT, body);
    }
    let failed = |why: &str| ("503 Service Unavailable", TEXT, format!("{why}\n"));
    let gone = "the writer thread has failed";
    match target.split('?').next().unwrap_or("") {
        "/livez" if inbox.is_alive() => ("200 OK", TEXT, "alive\n".to_owned()),
        "/livez" => failed(gone),
        "/readyz" => match inbox.call(None, |writing| writing.status()) {
            Ok(status) => match status.trouble {
                None => ("200 OK", TEXT, "ready\n".to_owned()),
                Some(trouble) => failed(&trouble),
            },
            Err(_) => failed(gone),
        },
        "/metrics" => match inbox.call(None, |writing| writing.status()) {
            Ok(status) => (
                "200 OK",
                "text/plain; version=0.0.4",
                exposition::render(&status),
            ),
            Err(_) => failed(gone),
        },
        _ => {
            let body = "there are /metrics, /livez and /readyz\n".to_owned();
            ("404 Not Found", TEXT, body)
        }
    }
}
