//! OTLP from senders to SQL: what is sent well is stored whole, what is sent badly is refused, counted and named, and the daemon goes on.

mod hostile;
mod json;
mod readme;
mod sender;
mod signals;
mod targets;
mod times;
