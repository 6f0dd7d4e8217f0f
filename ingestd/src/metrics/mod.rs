//! Metrics from other programs: samples that are scraped from targets or come over OTLP, on their way into sources.
//!
//! A *series* is a metric with its labels, as in Prometheus. A *group* is a source whose fields are series of one target, and a *slot* is the group and
//! the field of a series. Samples that come together become one record of each group and time (Heracles §3: the series of a target share a timestamp).
//! A target or a sender has a [`GroupStore`](series::GroupStore), which knows the slot of each series, and passes records to the daemon through an
//! [`Inlet`](crate::daemon::Inlet). To the rest of the daemon, series are fields.

mod names;
mod otlp;
mod scrape;
mod series;

pub(crate) use names::is_forgettable;
pub(crate) use otlp::{Senders, Shares};
pub(crate) use scrape::{Scrapers, doubt};
