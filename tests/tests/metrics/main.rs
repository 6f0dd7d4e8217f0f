//! Metrics from targets to SQL: real scrapes of scripted and real targets, and what Prometheus says of the same samples.

mod hostile;
mod increase;
mod prometheus;
mod scrapes;
mod targets;
