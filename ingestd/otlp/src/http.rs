//! Requests over HTTP: a path for each signal, protobuf or JSON, answered in kind, gzip if the sender likes.

use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode};
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;
use tonic::body::Body;

use crate::handler::{Form, NotTaken, Sent, Signal, Taken};
use crate::request::{
    BUSY, Held, LIMITED_RETRY_AFTER_SECONDS, PATIENCE, RETRY_AFTER_SECONDS, Service,
};

/// How long what is left of a refused request is read.
const DRAIN: Duration = Duration::from_secs(2);
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// ExportXServiceResponse, which all signals have alike.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// google.rpc.Status, which every error has for a body.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

impl Response {
    fn json(&self, signal: Signal) -> Value {
        let Some(partial) = &self.partial_success else {
            return json!({});
        };
        let rejected = match signal {
            Signal::Logs => "rejectedLogRecords",
            Signal::Spans => "rejectedSpans",
            Signal::Metrics => "rejectedDataPoints",
        };
        json!({"partialSuccess": {
            // JSON has numbers of 64 bits as texts.
            rejected: partial.rejected.to_string(),
            "errorMessage": partial.error_message,
        }})
    }
}

impl From<Taken> for Response {
    fn from(taken: Taken) -> Response {
        let is_whole = taken == Taken::default();
        Response {
            partial_success: (!is_whole).then(|| PartialSuccess {
                rejected: i64::try_from(taken.refused).unwrap_or(i64::MAX),
                error_message: taken.why,
            }),
        }
    }
}

/// Why a request is answered with an error.
struct Refused {
    status: StatusCode,
    code: Code,
    why: String,
    header: Option<(HeaderName, HeaderValue)>,
    /// It held records, which nobody else counts.
    counts: bool,
}

impl Refused {
    fn new(status: StatusCode, code: Code, why: impl Into<String>) -> Refused {
        Refused {
            status,
            code,
            why: why.into(),
            header: None,
            counts: false,
        }
    }

    fn busy(why: impl Into<String>) -> Refused {
        Refused {
            header: Some((RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS))),
            ..Refused::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, why)
        }
    }

    fn counted(self) -> Refused {
        Refused {
            counts: true,
            ..self
        }
    }

    fn body(self, form: Form) -> Vec<u8> {
        let code = self.code as i32;
        match form {
            Form::Json => json!({"code": code, "message": self.why})
                .to_string()
                .into_bytes(),
            Form::Protobuf => RpcStatus {
                code,
                message: self.why,
            }
            .encode_to_vec(),
        }
    }
}

pub(crate) async fn answer(
    service: &Arc<Service>,
    from: IpAddr,
    request: Request<Incoming>,
) -> hyper::Response<Body> {
    let (head, mut body) = request.into_parts();
    let signal = match head.uri.path() {
        "/v1/logs" => Some(Signal::Logs),
        "/v1/traces" => Some(Signal::Spans),
        "/v1/metrics" => Some(Signal::Metrics),
        _ => None,
    };
    let form = form_of(&head.headers);
    let taken = match signal {
        Some(signal) => take(service, (signal, from), form, &head, &mut body)
            .await
            .map(|taken| (signal, Response::from(taken))),
        None => Err(Refused::new(
            StatusCode::NOT_FOUND,
            Code::NotFound,
            "not found; use /v1/logs, /v1/traces or /v1/metrics",
        )),
    };
    let form = form.unwrap_or(Form::Protobuf);
    let (status, header, body) = match taken {
        Ok((signal, taken)) => {
            let body = match form {
                Form::Json => taken.json(signal).to_string().into_bytes(),
                Form::Protobuf => taken.encode_to_vec(),
            };
            (StatusCode::OK, None, body)
        }
        Err(mut refused) => {
            if refused.counts
                && let Some(signal) = signal
            {
                service.jobs.turned_away(signal, &refused.why);
            }
            drain(&mut body, service.body_bytes_max).await;
            (refused.status, refused.header.take(), refused.body(form))
        }
    };
    let mut response = hyper::Response::new(Body::new(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let form = match form {
        Form::Json => JSON,
        Form::Protobuf => PROTOBUF,
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
    headers.extend(header);
    response
}

/// Reads what is left of a body, as far as that is soon done: a sender that is cut off while it sends does not read why.
async fn drain(body: &mut Incoming, most: usize) {
    let reading = async {
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(less) => left = less,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, reading).await;
}

async fn take(
    service: &Service,
    (signal, from): (Signal, IpAddr),
    form: Option<Form>,
    head: &Parts,
    body: &mut Incoming,
) -> Result<Taken, Refused> {
    if !service.admits(&head.headers) {
        return Err(Refused::new(
            StatusCode::UNAUTHORIZED,
            Code::Unauthenticated,
            "the bearer token is missing or wrong",
        ));
    }
    if head.method != Method::POST {
        return Err(Refused {
            header: Some((ALLOW, HeaderValue::from_static("POST"))),
            ..Refused::new(
                StatusCode::METHOD_NOT_ALLOWED,
                Code::Unimplemented,
                "use POST",
            )
        });
    }
    let Some(form) = form else {
        return Err(unsupported(
            "the content type is neither application/x-protobuf nor application/json; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf at the sender",
        ));
    };
    let is_packed = is_packed(&head.headers)?;
    let (body, _held) = read(service, body).await?;
    let (body, _room) = match is_packed {
        true => {
            let unpacked = unpack(&body, service.body_bytes_max)?;
            let room = service
                .room_for(unpacked.len())
                .ok_or_else(|| Refused::busy(BUSY))?;
            (Bytes::from(unpacked), Some(room))
        }
        false => (body, None),
    };
    let sent = Sent {
        signal,
        form,
        from,
        body,
    };
    service.take(sent).await.map_err(|error| match error {
        NotTaken::Busy(why) => Refused::busy(why),
        NotTaken::Limited(why) => Refused {
            header: Some((RETRY_AFTER, LIMITED_RETRY_AFTER_SECONDS.into())),
            ..Refused::new(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted, why)
        },
        NotTaken::Malformed(_) => Refused::new(
            StatusCode::BAD_REQUEST,
            Code::InvalidArgument,
            error.to_string(),
        ),
    })
}

/// What a header says, without its parameters, in small letters: media types and encodings have no case (RFC 9110, 8.3.1 and 8.4.1).
fn plain(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().unwrap_or("?");
    let value = value.split(';').next().unwrap_or_default();
    Some(value.trim().to_ascii_lowercase())
}

/// How the body is written; `None`: in another way than these.
fn form_of(headers: &HeaderMap) -> Option<Form> {
    match plain(headers, CONTENT_TYPE)?.as_str() {
        PROTOBUF => Some(Form::Protobuf),
        JSON => Some(Form::Json),
        _ => None,
    }
}

/// Whether a body is compressed.
fn is_packed(headers: &HeaderMap) -> Result<bool, Refused> {
    match plain(headers, CONTENT_ENCODING).as_deref() {
        None | Some("" | "identity") => Ok(false),
        Some("gzip") => Ok(true),
        Some(_) => Err(unsupported(
            "the content encoding is not gzip; set OTEL_EXPORTER_OTLP_COMPRESSION=gzip at the sender",
        )),
    }
}

fn unsupported(why: &'static str) -> Refused {
    Refused::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::InvalidArgument,
        why,
    )
}

/// The body, and the room that it takes.
async fn read(service: &Service, body: &mut Incoming) -> Result<(Bytes, Held), Refused> {
    let most = service.body_bytes_max;
    if body.size_hint().lower() > most as u64 {
        return Err(too_long(most).counted());
    }
    let mut held = service.held();
    let mut bytes = BytesMut::new();
    let reading = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| cut_short())?;
            if let Some(more) = frame.data_ref() {
                held.add(more.len())
                    .map_err(|busy| Refused::busy(busy.message()))?;
                bytes.extend_from_slice(more);
            }
            if bytes.len() > most {
                return Err(too_long(most).counted());
            }
        }
        Ok(())
    };
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(read) => read.map(|()| (bytes.freeze(), held)),
        Err(_) => Err(Refused::new(
            StatusCode::REQUEST_TIMEOUT,
            Code::DeadlineExceeded,
            "the request took more than 30 seconds",
        )),
    }
}

fn cut_short() -> Refused {
    let why = "the request was cut short";
    Refused::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, why)
}

fn too_long(most: usize) -> Refused {
    Refused::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        Code::InvalidArgument,
        format!("the request is longer than body_max, {most} bytes; send less at once"),
    )
}

fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>, Refused> {
    let mut unpacked = Vec::new();
    let limit = most as u64 + 1;
    let read = MultiGzDecoder::new(packed)
        .take(limit)
        .read_to_end(&mut unpacked);
    match read {
        Ok(bytes) if bytes > most => Err(too_long(most).counted()),
        Ok(_) => Ok(unpacked),
        Err(error) => Err(Refused::new(
            StatusCode::BAD_REQUEST,
            Code::InvalidArgument,
            format!("the body is not gzip: {error}"),
        )
        .counted()),
    }
}
