//! A server over HTTP/1.1 and HTTP/2. One thread accepts connections within limits, and serves each with the routes of its owner until it ends or is
//! silent too long. The receiver of OTLP ([`crate::receiver`]) and the pages for monitoring ([`crate::pages`]) are servers.
//!
//! Connections are counted here, because layers of a route see a connection only at its first request.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as Bound};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// The interval of reports about connections that were closed at once, because there may be thousands a second.
const CLOSED_EVERY: Duration = Duration::from_secs(1);
/// The limit of concurrent requests of a connection over HTTP/2.
const STREAMS_MAX: u32 = 32;
/// The interval of pings over HTTP/2, and the time in which a client must answer one.
const PING: Duration = Duration::from_secs(30);
/// The longest head of a request, and the buffer of a connection.
const HEAD_BYTES_MAX: usize = 64 << 10;
const RETRY: Duration = Duration::from_millis(50);
/// How long a stop waits for connections, and then for the threads of their requests. Clients repeat requests that were cut off.
const STOP_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Limits {
    /// The limit of concurrent connections; a further one is closed at once, and counted.
    pub(crate) connections_max: usize,
    /// The time for a TLS handshake, and for the head of a request.
    pub(crate) head: Duration,
    pub(crate) patience: Patience,
}

/// The time that a connection lasts.
#[derive(Copy, Clone)]
pub(crate) enum Patience {
    /// The greatest length, over HTTP/1 only.
    Whole(Duration),
    /// The connection may be without a request for this time; up to twice as long after one.
    Idle(Duration),
}

/// The parts that all connections share.
struct Shared {
    limits: Limits,
    tls: Option<TlsAcceptor>,
    routes: Router,
}

/// A running server. It ends with [`Server::stop`].
pub struct Server {
    addresses: Vec<SocketAddr>,
    until: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Serves from now on. `closed` counts connections that were closed at once.
    pub(crate) fn start(
        name: &str,
        bound: Vec<Bound>,
        limits: Limits,
        tls: Option<TlsAcceptor>,
        routes: Router,
        closed: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Server> {
        let addresses = bound.iter().map(Bound::local_addr);
        let addresses = addresses.collect::<io::Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name(format!("{name}-wait"))
            .build()?;
        let enter = runtime.enter();
        let mut listeners = Vec::with_capacity(bound.len());
        for listener in bound {
            listener.set_nonblocking(true)?;
            listeners.push(TcpListener::from_std(listener)?);
        }
        drop(enter);
        let (until, stopped) = oneshot::channel();
        let shared = Arc::new(Shared {
            limits,
            tls,
            routes,
        });
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(run(listeners, shared, closed, stopped));
                runtime.shutdown_timeout(STOP_WAIT);
            })?;
        Ok(Server {
            addresses,
            until,
            thread,
        })
    }

    /// The addresses on which it listens, with the chosen port instead of 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Accepts no more connections, and returns the thread, which waits a short time for running requests and ends.
    pub fn stop(self) -> JoinHandle<()> {
        drop(self.until);
        self.thread
    }
}

async fn run(
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
    report: impl Fn(u64),
    mut stopped: oneshot::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(shared.limits.connections_max));
    let connections = GracefulShutdown::new();
    let mut reports = interval(CLOSED_EVERY);
    let (mut closed, mut turn) = (0, 0);
    loop {
        tokio::select! {
            // `stop` drops the other end.
            _ = &mut stopped => break,
            _ = reports.tick() => if closed > 0 {
                report(std::mem::take(&mut closed));
            },
            accepted = accept(&listeners, &mut turn) => match accepted {
                Ok((stream, from)) => match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        let (shared, watcher) = (Arc::clone(&shared), connections.watcher());
                        tokio::spawn(async move {
                            connection(stream, from.ip(), &shared, watcher).await;
                            drop(place);
                        });
                    }
                    Err(_) => closed += 1,
                },
                Err(error) => {
                    // Most likely there are no free descriptors, and other connections may close soon.
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(RETRY).await;
                }
            },
        }
    }
    drop(listeners);
    // A connection that needs longer is cut off.
    let _ = timeout(STOP_WAIT, connections.shutdown()).await;
}

/// The next connection to one of the listeners. Each is polled first in turn, so that a flood at one does not starve the others.
async fn accept(
    listeners: &[TcpListener],
    turn: &mut usize,
) -> io::Result<(TcpStream, SocketAddr)> {
    *turn = (*turn + 1) % listeners.len();
    let (later, first) = listeners.split_at(*turn);
    poll_fn(|context| {
        let in_turn = first.iter().chain(later);
        let mut polls = in_turn.map(|one| one.poll_accept(context));
        polls.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

async fn connection(stream: TcpStream, from: IpAddr, shared: &Shared, watcher: Watcher) {
    // Answers are short, and must not wait for more.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &shared.tls else {
        return serve(stream, from, shared, watcher).await;
    };
    match timeout(shared.limits.head, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, from, shared, watcher).await,
        Ok(Err(error)) => tracing::debug!("a client failed its TLS handshake: {error}"),
        Err(_) => tracing::debug!("a client took too long for its TLS handshake"),
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    from: IpAddr,
    shared: &Shared,
    watcher: Watcher,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.limits.head)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let served = Arc::new(AtomicU64::new(0));
    let answering = service_fn(|mut request: Request<Incoming>| {
        served.fetch_add(1, Ordering::Relaxed);
        request.extensions_mut().insert(from);
        let (routes, under_way) = (shared.routes.clone(), Arc::clone(&served));
        async move {
            let response = routes.oneshot(request).await;
            drop(under_way);
            response
        }
    });
    let builder = match shared.limits.patience {
        Patience::Whole(_) => builder.http1_only(),
        Patience::Idle(_) => builder,
    };
    let serving = builder.serve_connection(TokioIo::new(stream), answering);
    tokio::select! {
        ended = watcher.watch(serving) => if let Err(error) = ended {
            tracing::debug!("a connection failed: {error}");
        },
        () = over(&served, shared.limits.patience) => {}
    }
}

/// Ends when a connection has lasted long enough.
async fn over(served: &Arc<AtomicU64>, patience: Patience) {
    let idle = match patience {
        Patience::Whole(whole) => return sleep(whole).await,
        Patience::Idle(idle) => idle,
    };
    let mut before = 0;
    loop {
        sleep(idle).await;
        let now = served.load(Ordering::Relaxed);
        if now == before && Arc::strong_count(served) == 1 {
            return;
        }
        before = now;
    }
}
