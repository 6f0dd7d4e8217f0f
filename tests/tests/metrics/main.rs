//! Metrics from targets to SQL: real scrapes of scripted and real targets, and Prometheus' answers about the same samples.

mod hostile;
mod increase;
mod prometheus;
mod scrapes;
mod targets;
