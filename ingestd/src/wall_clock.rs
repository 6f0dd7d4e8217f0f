//! The present time, as records have it.

use std::time::{SystemTime, UNIX_EPOCH};

use loom_engine::Timestamp;

/// # Panics
/// The machine's clock is before 1970 or after 2262.
pub fn wall_clock() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().and_then(|now| i64::try_from(now.as_nanos()).ok());
    Timestamp(now.expect("the machine's clock is between 1970 and 2262"))
}
