//! The receiver of OpenTelemetry's protocol, OTLP, over gRPC and HTTP at the same addresses, with or without TLS. Pages for monitoring use the same
//! [`server`].
//!
//! A connection of the [`server`] hands a request to the routes of the [`receiver`], whose layers apply the limits and read it as gRPC or HTTP
//! ([`grpc`], [`http`]). One request at a time goes to the [`Handler`], which reads it with [`logs`], [`spans`] or [`metrics`] and returns the
//! result. These read a request record by record and never decode it as a whole, so a request of empty records costs no more than its bytes. JSON
//! becomes protobuf first ([`from_json`]).
//!
//! The crate does not know Loom: it returns plain values. It alone uses tokio, axum and tonic, and each server has one thread for them.

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
