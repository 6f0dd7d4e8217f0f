//! Requests over gRPC. tonic reads and writes the frames; their contents stay bytes.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Buf, BufMut, Bytes};
use http_body_util::BodyExt;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tower::service_fn;

use crate::body::{Metered, unread};
use crate::http::{Form, exported};
use crate::service::Service;
use crate::signal::Signal;

pub(crate) async fn export(
    State(service): State<Arc<Service>>,
    Extension(signal): Extension<Signal>,
    Extension(from): Extension<IpAddr>,
    request: Request,
) -> Response {
    if Form::of(request.headers()) != Some(Form::Grpc) {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    let mut grpc = Grpc::new(AsBytes)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(service.body_bytes_max);
    let take = service_fn(|request: tonic::Request<Bytes>| async {
        let taken = service.take(signal, false, from, request.into_inner());
        let exported = exported(taken.await?).encode_to_vec();
        Ok(tonic::Response::new(Bytes::from(exported)))
    });
    let request = request.map(|body| Metered::new(body, &service.room).map_err(unread));
    grpc.unary(take, request).await.map(Body::new)
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
