//! Requests over gRPC. tonic reads and writes its frames; what they hold stays bytes.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use hyper::Request;
use hyper::body::Incoming;
use prost::Message;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

use crate::handler::{Form, NotTaken, Sent, Signal, Taken};
use crate::http::Response as Answer;
use crate::request::{BUSY, LIMITED_RETRY_AFTER_SECONDS, PATIENCE, Service};

fn signal(path: &str) -> Option<Signal> {
    let service = path.strip_prefix("/opentelemetry.proto.collector.")?;
    match service {
        "logs.v1.LogsService/Export" => Some(Signal::Logs),
        "trace.v1.TraceService/Export" => Some(Signal::Spans),
        "metrics.v1.MetricsService/Export" => Some(Signal::Metrics),
        _ => None,
    }
}

pub(crate) async fn answer(
    service: &Arc<Service>,
    from: IpAddr,
    request: Request<Incoming>,
) -> hyper::Response<Body> {
    if !service.admits(request.headers()) {
        return Status::unauthenticated("the bearer token is missing or wrong").into_http();
    }
    let Some(signal) = signal(request.uri().path()) else {
        let why = "no such method; there are Export of LogsService, TraceService and MetricsService of opentelemetry.proto.collector";
        return Status::new(Code::Unimplemented, why).into_http();
    };
    let request = request.map(|body| service.metered(body));
    let mut grpc = Grpc::new(AsBytes)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(service.body_bytes_max);
    let exporter = Exporter {
        service: Arc::clone(service),
        signal,
        from,
    };
    let answered = tokio::time::timeout(PATIENCE, grpc.unary(exporter, request)).await;
    let response = answered
        .unwrap_or_else(|_| Status::deadline_exceeded("the request took too long").into_http());
    let status = response.extensions().get::<Status>();
    // The handler has counted what it has seen; of these codes it gives only one, with details.
    if let Some(status) = status
        && status.details().is_empty()
        && matches!(
            status.code(),
            Code::OutOfRange | Code::ResourceExhausted | Code::Internal
        )
    {
        service.jobs.turned_away(signal, status.message());
    }
    response
}

struct Exporter {
    service: Arc<Service>,
    signal: Signal,
    from: IpAddr,
}

type Exported = Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send>>;

impl UnaryService<Bytes> for Exporter {
    type Response = Bytes;
    type Future = Exported;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Exported {
        let (service, signal, from) = (Arc::clone(&self.service), self.signal, self.from);
        Box::pin(async move {
            let body = request.into_inner();
            let Some(_room) = service.room_for(body.len()) else {
                return Err(Status::unavailable(BUSY));
            };
            let form = Form::Protobuf;
            let sent = Sent {
                signal,
                form,
                from,
                body,
            };
            match service.take(sent).await {
                Ok(taken) => Ok(tonic::Response::new(encoded(taken))),
                Err(busy @ NotTaken::Busy(_)) => Err(Status::unavailable(busy.to_string())),
                Err(NotTaken::Limited(why)) => Err(limited(&why)),
                Err(error @ NotTaken::Malformed(_)) => {
                    Err(Status::invalid_argument(error.to_string()))
                }
            }
        })
    }
}

/// google.rpc.Status with one detail, which says when to come again: without it a sender drops the request.
#[derive(Clone, PartialEq, prost::Message)]
struct Limited {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// google.protobuf.Any of a google.rpc.RetryInfo.
#[derive(Clone, PartialEq, prost::Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// google.protobuf.Duration.
#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

fn limited(why: &str) -> Status {
    let seconds = LIMITED_RETRY_AFTER_SECONDS.into();
    let retry = RetryInfo {
        retry_delay: Some(Delay { seconds }),
    };
    let details = vec![Detail {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
        value: retry.encode_to_vec(),
    }];
    let all = Limited {
        code: Code::ResourceExhausted as i32,
        message: why.to_owned(),
        details,
    };
    Status::with_details(Code::ResourceExhausted, why, all.encode_to_vec().into())
}

fn encoded(taken: Taken) -> Bytes {
    Answer::from(taken).encode_to_vec().into()
}

/// Messages that stay bytes.
#[derive(Copy, Clone)]
struct AsBytes;

impl Codec for AsBytes {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = AsBytes;
    type Decoder = AsBytes;

    fn encoder(&mut self) -> AsBytes {
        AsBytes
    }

    fn decoder(&mut self) -> AsBytes {
        AsBytes
    }
}

impl Encoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
