//! The thread of the receiver: it accepts, and serves each connection until it ends or is silent for long.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as Bound};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::handler::{Handler, Jobs};
use crate::request::Service;
use crate::tls::{Tls, TlsError};
use crate::{grpc, http};

/// Served at a time; one more is closed at once, and counted.
const CONNECTIONS_MAX: usize = 256;
/// How often connections that were closed at once are counted and named.
const CLOSED_EVERY: Duration = Duration::from_secs(1);
/// Requests of one connection at a time, over HTTP/2.
const STREAMS_MAX: u32 = 32;
/// How long a connection may have no request.
const IDLE: Duration = Duration::from_secs(300);
/// How long a TLS handshake and the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection's sender may not answer a ping over HTTP/2, and how often it gets one.
const PING: Duration = Duration::from_secs(30);
/// The longest head of a request, and what of a connection is buffered.
const HEAD_BYTES_MAX: usize = 64 << 10;
const RETRY: Duration = Duration::from_millis(50);
/// How long a stop waits for requests under way. Their senders send them again.
const STOP_WAIT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

/// How requests are received.
#[derive(Clone)]
pub struct Options {
    body_bytes_max: usize,
    tls: Option<TlsAcceptor>,
    token: Option<String>,
}

impl Options {
    /// The longest body, in bytes, also after it is unpacked; TLS, if senders must use it; what they must give as a bearer token, if anything.
    pub fn new(
        body_bytes_max: usize,
        tls: Option<&Tls>,
        token: Option<String>,
    ) -> Result<Options, TlsError> {
        Ok(Options {
            body_bytes_max,
            tls: tls.map(Tls::acceptor).transpose()?,
            token,
        })
    }
}

/// A receiver at work. It ends with [`Receiver::stop`].
pub struct Receiver {
    addresses: Vec<SocketAddr>,
    until: oneshot::Sender<()>,
    threads: [JoinHandle<()>; 2],
}

impl Receiver {
    /// Receives from now on.
    pub fn start(
        bound: Vec<Bound>,
        options: Options,
        handler: impl Handler,
    ) -> io::Result<Receiver> {
        let tls = options.tls;
        let addresses = bound.iter().map(Bound::local_addr);
        let addresses = addresses.collect::<io::Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let enter = runtime.enter();
        let mut listeners = Vec::with_capacity(bound.len());
        for listener in bound {
            listener.set_nonblocking(true)?;
            listeners.push(TcpListener::from_std(listener)?);
        }
        drop(enter);
        let (jobs, taker) = Jobs::start(handler)?;
        let service = Service::new(jobs, options.body_bytes_max, options.token);
        let (until, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("loom-otlp".to_owned())
            .spawn(move || {
                runtime.block_on(run(listeners, tls, Arc::new(service), stopped));
                // Connections end with it, and with them the other thread.
                drop(runtime);
            })?;
        Ok(Receiver {
            addresses,
            until,
            threads: [thread, taker],
        })
    }

    /// Where it listens: the ports that were given, or those that were found for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Accepts no more, waits a little for requests under way, and gives back the threads, which end.
    pub fn stop(self) -> [JoinHandle<()>; 2] {
        drop(self.until);
        self.threads
    }
}

async fn run(
    listeners: Vec<TcpListener>,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    stopped: oneshot::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let closed = Arc::new(AtomicU64::new(0));
    let mut accepting = vec![tokio::spawn(tell(
        Arc::clone(&closed),
        Arc::clone(&service),
    ))];
    accepting.extend(listeners.into_iter().map(|listener| {
        let (tls, service, places) = (tls.clone(), Arc::clone(&service), Arc::clone(&places));
        tokio::spawn(accept(listener, tls, service, places, Arc::clone(&closed)))
    }));
    // The other end is dropped to say so.
    let _ = stopped.await;
    for task in accepting {
        task.abort();
    }
    let began = Instant::now();
    while !service.is_idle() && began.elapsed() < STOP_WAIT {
        sleep(LOOK).await;
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    places: Arc<Semaphore>,
    closed: Arc<AtomicU64>,
) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok((stream, address)) => (stream, address.ip()),
            Err(error) => {
                // Out of descriptors, most likely: others may close soon.
                tracing::warn!("cannot accept a connection for OTLP: {error}");
                sleep(RETRY).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            closed.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let (tls, service) = (tls.clone(), Arc::clone(&service));
        tokio::spawn(async move {
            connection(stream, from, tls, service).await;
            drop(place);
        });
    }
}

/// Counts the connections that found no place, now and then: somebody may open thousands a second.
async fn tell(closed: Arc<AtomicU64>, service: Arc<Service>) {
    loop {
        sleep(CLOSED_EVERY).await;
        let count = closed.swap(0, Ordering::Relaxed);
        if count > 0 && !service.jobs.closed(count, CONNECTIONS_MAX) {
            closed.fetch_add(count, Ordering::Relaxed);
        }
    }
}

async fn connection(
    stream: TcpStream,
    from: IpAddr,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
) {
    // What is answered is short: it must not wait for more.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return serve(stream, from, service).await;
    };
    match timeout(HEAD, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, from, service).await,
        Ok(Err(error)) => tracing::debug!("a sender of OTLP failed its TLS handshake: {error}"),
        Err(_) => tracing::debug!("a sender of OTLP took too long for its TLS handshake"),
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    from: IpAddr,
    service: Arc<Service>,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32);
    let activity = Arc::new(Activity::new());
    let answering = service_fn({
        let activity = Arc::clone(&activity);
        move |request| {
            let (service, activity) = (Arc::clone(&service), Arc::clone(&activity));
            async move {
                let _busy = Busy::begin(&activity);
                Ok::<_, std::convert::Infallible>(answer(&service, from, request).await)
            }
        }
    });
    let serving = builder.serve_connection(TokioIo::new(stream), answering);
    let idle = async {
        while !activity.is_over() {
            sleep(HEAD).await;
        }
    };
    tokio::select! {
        served = serving => {
            if let Err(error) = served {
                tracing::debug!("a connection of OTLP failed: {error}");
            }
        }
        () = idle => {}
    }
}

async fn answer(
    service: &Arc<Service>,
    from: IpAddr,
    request: Request<Incoming>,
) -> hyper::Response<tonic::body::Body> {
    let under_way = service.under_way();
    let kind = request.headers().get(CONTENT_TYPE);
    const GRPC: &[u8] = b"application/grpc";
    let begins = kind.and_then(|kind| kind.as_bytes().get(..GRPC.len()));
    let is_grpc = begins.is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC));
    let response = match is_grpc {
        true => grpc::answer(service, from, request).await,
        false => http::answer(service, from, request).await,
    };
    drop(under_way);
    response
}

/// When a connection last had a request. One that has not had any has had one when it began.
struct Activity {
    began: Instant,
    open: AtomicU64,
    last_ms: AtomicU64,
}

impl Activity {
    fn new() -> Activity {
        Activity {
            began: Instant::now(),
            open: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn is_over(&self) -> bool {
        let silent_ms = (self.now_ms()).saturating_sub(self.last_ms.load(Ordering::Relaxed));
        self.open.load(Ordering::Relaxed) == 0 && silent_ms > IDLE.as_millis() as u64
    }
}

/// A request of a connection, until it is dropped.
struct Busy(Arc<Activity>);

impl Busy {
    fn begin(activity: &Arc<Activity>) -> Busy {
        activity.open.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Busy(activity) = self;
        activity.last_ms.store(activity.now_ms(), Ordering::Relaxed);
        activity.open.fetch_sub(1, Ordering::Relaxed);
    }
}
