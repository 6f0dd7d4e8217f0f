//! Metrics of others: samples of series that are scraped from targets, or come over OTLP, on their way into sources.
//!
//! Samples that come together become one record of each group and time (Heracles §3: the series of a target share a timestamp). A target or a sender
//! has a [`GroupStore`](series::GroupStore), which knows the source and the field of each series, and hands records to the daemon through an
//! [`Inlet`](crate::daemon::Inlet). To the daemon itself, series are fields.

mod names;
mod otlp;
mod scrape;
mod series;

pub(crate) use names::is_forgettable;
pub(crate) use otlp::{Senders, Shares};
pub(crate) use scrape::{Scrapers, doubt};
