//! A time as people read it, in messages, in tables and for actions.

use loom_engine::Timestamp;

/// The time in UTC, or its nanoseconds since 1970 where the calendar of RFC 3339 does not reach.
pub fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(time.0.into())
        .map_or_else(|_| time.0.to_string(), |time| time.to_string())
}
