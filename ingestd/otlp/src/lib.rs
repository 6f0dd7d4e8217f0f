//! The receiver of OpenTelemetry's protocol, OTLP: gRPC and HTTP at the same addresses, with or without TLS; and pages for monitoring, on the same
//! [`server`].
//!
//! A request goes one way: a connection of the [`server`] hands it to the routes of the [`receiver`], whose layers read it within limits, as gRPC or
//! HTTP says ([`grpc`], [`http`]); one at a time goes to the [`Handler`], which reads it with [`logs`], [`spans`] or [`metrics`] and says what
//! became of it. These take a request apart record by record and never hold it decoded as a whole, so a request of empty records costs no more
//! than its bytes. JSON becomes protobuf first ([`from_json`]).
//!
//! The crate knows nothing of Loom: what it gives are plain values. It alone brings tokio, axum and tonic, and runs them in one thread a server.

mod body;
mod envelope;
mod from_json;
mod grpc;
mod handler;
mod http;
mod json;
mod logs;
mod metrics;
mod naming;
mod pages;
mod promoted;
mod receiver;
mod schema;
mod server;
mod service;
mod signal;
mod spans;
mod tls;
mod utf8;
mod wire;

pub use envelope::Origin;
pub use handler::{Handler, NotTaken, Taken};
pub use logs::{Log, logs};
pub use metrics::{Found, Point, Sample, TARGET_INFO, metrics};
pub use pages::{Make, Page};
pub use promoted::{Kind, Promoted, Scalar};
pub use receiver::Options;
pub use server::Server;
pub use signal::Signal;
pub use spans::{Span, spans};
pub use tls::{Tls, TlsError};
pub use utf8::REPAIRED;
pub use wire::Malformed;
