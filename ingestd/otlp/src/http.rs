//! Requests over HTTP, in protobuf or JSON; an answer has the form of its request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use prost::Message;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::body::{Metered, unread};
use crate::handler::Taken;
use crate::service::{LIMITED_RETRY_AFTER, Service};
use crate::signal::Signal;

/// The encoding of a request and its answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Grpc,
    Protobuf,
    Json,
}

impl Form {
    /// The form that the content type names, without regard to case and parameters (RFC 9110, 8.3.1); `None` if it is a different type.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Form> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next()?.trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/x-protobuf" => Some(Form::Protobuf),
            "application/json" => Some(Form::Json),
            kind => kind.starts_with("application/grpc").then_some(Form::Grpc),
        }
    }

    fn answer(self, code: StatusCode, message: &impl Message, json: &Value) -> Response {
        let (kind, body) = match self {
            Form::Json => ("application/json", json.to_string().into_bytes()),
            _ => ("application/x-protobuf", message.encode_to_vec()),
        };
        (code, [(CONTENT_TYPE, kind)], body).into_response()
    }

    /// Every error has a google.rpc.Status as its body.
    pub(crate) fn refusal(self, code: StatusCode, status: &Status) -> Response {
        let message = tonic_types::Status {
            code: status.code() as i32,
            message: status.message().to_owned(),
            details: Vec::new(),
        };
        let json = json!({"code": message.code, "message": message.message});
        let mut response = self.answer(code, &message, &json);
        let header = match code {
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, HeaderValue::from_static("POST"))),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, HeaderValue::from(1))),
            StatusCode::TOO_MANY_REQUESTS => {
                Some((RETRY_AFTER, LIMITED_RETRY_AFTER.as_secs().into()))
            }
            _ => None,
        };
        response.headers_mut().extend(header);
        response
    }
}

/// The code of HTTP for a code of gRPC.
pub(crate) fn code_of(status: &Status) -> StatusCode {
    match status.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Unimplemented => StatusCode::NOT_FOUND,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::OutOfRange => StatusCode::PAYLOAD_TOO_LARGE,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

pub(crate) async fn export(
    State(service): State<Arc<Service>>,
    Extension(signal): Extension<Signal>,
    Extension(from): Extension<IpAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let form = match Form::of(&headers) {
        Some(form @ (Form::Protobuf | Form::Json)) => form,
        _ => {
            let why = "the content type is neither application/x-protobuf nor application/json; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf at the sender";
            let status = Extension(Status::invalid_argument(why));
            return (StatusCode::UNSUPPORTED_MEDIA_TYPE, status).into_response();
        }
    };
    let taken = async {
        let body = Body::new(Metered::new(body, &service.room));
        let body = to_bytes(body, service.body_bytes_max).await;
        let body = body.map_err(unread)?;
        service.take(signal, form == Form::Json, from, body).await
    };
    match taken.await {
        Ok(taken) => {
            let exported = exported(taken);
            form.answer(StatusCode::OK, &exported, &exported_json(&exported, signal))
        }
        Err(status) => status.into_http(),
    }
}

/// ExportXServiceResponse, which is the same for all signals in protobuf.
pub(crate) fn exported(taken: Taken) -> ExportLogsServiceResponse {
    let is_whole = taken == Taken::default();
    ExportLogsServiceResponse {
        partial_success: (!is_whole).then(|| ExportLogsPartialSuccess {
            rejected_log_records: i64::try_from(taken.refused).unwrap_or(i64::MAX),
            error_message: taken.why,
        }),
    }
}

fn exported_json(exported: &ExportLogsServiceResponse, signal: Signal) -> Value {
    let Some(partial) = &exported.partial_success else {
        return json!({});
    };
    let rejected = signal.names().rejected;
    json!({"partialSuccess": {
        // In JSON, numbers of 64 bits are texts.
        rejected: partial.rejected_log_records.to_string(),
        "errorMessage": partial.error_message,
    }})
}
