//! Requests over gRPC. tonic reads and writes its frames; what they hold stays bytes.

use std::future::Future;
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

use crate::handler::{Form, NotTaken, Signal, Taken};
use crate::http::Response as Answer;
use crate::request::{BUSY, PATIENCE, Service};

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
    };
    let answered = tokio::time::timeout(PATIENCE, grpc.unary(exporter, request)).await;
    let response = answered
        .unwrap_or_else(|_| Status::deadline_exceeded("the request took too long").into_http());
    let status = response.extensions().get::<Status>();
    // What the handler has seen it has counted.
    if let Some(status) = status
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
}

type Exported = Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send>>;

impl UnaryService<Bytes> for Exporter {
    type Response = Bytes;
    type Future = Exported;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Exported {
        let (service, signal) = (Arc::clone(&self.service), self.signal);
        Box::pin(async move {
            let body = request.into_inner();
            let Some(_room) = service.room_for(body.len()) else {
                return Err(Status::unavailable(BUSY));
            };
            match service.take(signal, Form::Protobuf, body).await {
                Ok(taken) => Ok(tonic::Response::new(encoded(taken))),
                Err(busy @ NotTaken::Busy(_)) => Err(Status::unavailable(busy.to_string())),
                Err(error @ NotTaken::Malformed(_)) => {
                    Err(Status::invalid_argument(error.to_string()))
                }
            }
        })
    }
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
