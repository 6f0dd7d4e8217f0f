//! The receiver of OTLP: a server whose routes take requests over gRPC and HTTP. Layers limit, time and decompress them. One function counts each
//! refusal, also that of a layer, and answers it in the protocol of its sender.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use tokio_rustls::TlsAcceptor;
use tonic::{Code, Status};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::RequestBodyDeadlineLayer;

use crate::body::Shared;
use crate::handler::Handler;
use crate::http::{Form, code_of};
use crate::server::{Limits, Patience, Server};
use crate::service::{CONNECTIONS_MAX, Service};
use crate::signal::Signal;
use crate::tls::{Tls, TlsError};
use crate::{grpc, http};

const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    head: Duration::from_secs(10),
    patience: Patience::Idle(Duration::from_secs(300)),
};
/// The time that a sender has to send a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The scheme of a token, without regard to case (RFC 9110, 11.1).
const SCHEME: &[u8] = b"Bearer ";

/// The limits and requirements of requests.
#[derive(Clone)]
pub struct Options {
    body_bytes_max: usize,
    tls: Option<TlsAcceptor>,
    token: Option<String>,
}

impl Options {
    /// The longest body in bytes, also after decompression; TLS, if senders must use it; their bearer token, if they need one.
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

impl Server {
    /// Receives from now on, with a handler that `begin` makes. It makes another one after a handler has panicked.
    pub fn receive<H: Handler>(
        bound: Vec<TcpListener>,
        options: Options,
        begin: impl Fn() -> io::Result<H> + Send + 'static,
    ) -> io::Result<Server> {
        let service = Arc::new(Service::new(begin, options.body_bytes_max)?);
        let routes = routes(&service, options.token);
        let closed = move |count| service.closed(count);
        Server::start("loom-otlp", bound, LIMITS, options.tls, routes, closed)
    }
}

fn routes(service: &Arc<Service>, token: Option<String>) -> Router {
    let mut routes = Router::new();
    for signal in Signal::ALL {
        let unpacked = (
            Extension(signal),
            RequestBodyLimitLayer::new(service.body_bytes_max),
            RequestDecompressionLayer::new(),
        );
        let names = signal.names();
        routes = routes
            .route(names.path, post(http::export).layer(unpacked))
            .route(names.method, post(grpc::export).layer(Extension(signal)));
    }
    routes
        .layer(RequestBodyDeadlineLayer::new(PATIENCE))
        .layer(from_fn_with_state(token.map(Arc::<str>::from), admit))
        .layer(from_fn_with_state(Arc::clone(service), answer))
        .with_state(Arc::clone(service))
}

/// Refuses senders without the token, if there is one.
async fn admit(State(token): State<Option<Arc<str>>>, request: Request, next: Next) -> Response {
    match token.is_none_or(|token| has_token(request.headers(), token.as_bytes())) {
        true => next.run(request).await,
        false => Status::unauthenticated("the bearer token is missing or wrong").into_http(),
    }
}

fn has_token(headers: &HeaderMap, token: &[u8]) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let given = given.and_then(|given| given.split_at_checked(SCHEME.len()));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
    given.is_some_and(|(_, given)| is_equal(given, token))
}

/// Compares in constant time, so that the time does not show where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && differ == 0
}

/// Answers a request in the form of its sender, after its body has been read.
async fn answer(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let form = Form::of(request.headers());
    let signal = Signal::at(request.uri().path());
    let (mut head, body) = request.into_parts();
    // Case does not matter in encodings (RFC 9110, 8.4.1), but it does in the layer that decompresses.
    match head.headers.get_mut(CONTENT_ENCODING) {
        Some(encoding) if encoding.as_bytes().trim_ascii().is_empty() => {
            head.headers.remove(CONTENT_ENCODING);
        }
        Some(encoding) => {
            if let Ok(small) = encoding.as_bytes().to_ascii_lowercase().try_into() {
                *encoding = small;
            }
        }
        None => {}
    }
    let body = Shared::new(body);
    let request = Request::from_parts(head, Body::new(body.clone()));
    let response = next.run(request).await;
    let Some((code, status)) = refusal(&response, service.body_bytes_max) else {
        return response;
    };
    // The handler counts its own refusals. Only it gives one of these codes with details.
    if let Some(signal) = signal
        && status.details().is_empty()
        && matches!(
            status.code(),
            Code::OutOfRange | Code::ResourceExhausted | Code::Internal
        )
    {
        service.turned_away(signal, status.message());
    }
    body.drain(service.body_bytes_max).await;
    match form {
        Some(Form::Grpc) => status.into_http(),
        form => form.unwrap_or(Form::Protobuf).refusal(code, &status),
    }
}

/// The codes of HTTP and gRPC for a refused request. Layers give only the former.
fn refusal(response: &Response, body_bytes_max: usize) -> Option<(StatusCode, Status)> {
    let given = response.extensions().get::<Status>().cloned();
    let code = match (response.status(), &given) {
        (StatusCode::OK, Some(status)) => code_of(status),
        (StatusCode::OK, None) => return None,
        (code, _) => code,
    };
    let status = match (code, given) {
        (StatusCode::PAYLOAD_TOO_LARGE, _) => Status::out_of_range(format!(
            "the request is longer than body_max, {body_bytes_max} bytes; send less at once"
        )),
        (_, Some(status)) => status,
        (StatusCode::NOT_FOUND, None) => Status::new(
            Code::Unimplemented,
            "not found; use /v1/logs, /v1/traces or /v1/metrics, or over gRPC Export of LogsService, TraceService or MetricsService of opentelemetry.proto.collector",
        ),
        (StatusCode::METHOD_NOT_ALLOWED, None) => Status::new(Code::Unimplemented, "use POST"),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, None) => Status::invalid_argument(
            "the content encoding is not gzip; set OTEL_EXPORTER_OTLP_COMPRESSION=gzip at the sender",
        ),
        (code, None) => Status::unknown(code.to_string()),
    };
    Some((code, status))
}
