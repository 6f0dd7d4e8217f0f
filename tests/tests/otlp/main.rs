//! OTLP from senders to SQL: good requests are stored whole, bad ones are refused, counted and named, and the daemon goes on.

mod export;
mod full;
mod hostile;
mod json;
mod limits;
mod order;
mod readme;
mod sender;
mod signals;
mod targets;
mod times;
