//! OTLP from senders to SQL: what is sent well is stored whole, what is sent badly is refused, counted and named, and the daemon goes on.

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
