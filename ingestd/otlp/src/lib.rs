//! The receiver of OpenTelemetry's protocol, OTLP: gRPC and HTTP at the same addresses, with or without TLS.
//!
//! A request goes one way: a connection ([`listen`]) reads it within limits ([`request`]), as gRPC or HTTP says ([`grpc`], [`http`]); one
//! thread hands its bytes to the [`Handler`], which reads them with [`logs`], [`spans`] or [`metrics`] and says what became of them. These
//! take a request apart record by record and never hold it decoded as a whole, so a request of empty records costs no more than its bytes.
//!
//! The crate knows nothing of Loom: what it gives are plain values. It alone brings tokio and tonic, and runs them in one thread.

mod envelope;
mod from_json;
mod grpc;
mod handler;
mod http;
mod json;
mod json_tree;
mod listen;
mod logs;
mod metrics;
mod naming;
mod promoted;
mod request;
mod spans;
mod tls;
mod utf8;
mod wire;

pub use envelope::Origin;
pub use handler::{Handler, NotTaken, Signal, Taken};
pub use listen::{Options, Receiver};
pub use logs::{Log, logs};
pub use metrics::{Found, Point, Sample, TARGET_INFO, metrics};
pub use promoted::{Kind, Promoted, Scalar};
pub use spans::{Span, spans};
pub use tls::{Tls, TlsError};
pub use utf8::REPAIRED;
pub use wire::Malformed;
