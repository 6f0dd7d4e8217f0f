//! The status of a daemon: the JSON document of `PROTOCOL.md`, written here and read by `ingestd status` and `top`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A daemon's state at one moment. Counts are since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonStatus {
    pub pid: u32,
    pub uptime_ns: u64,
    pub connections: u64,
    /// Open rings, and their memory.
    pub rings: u64,
    pub ring_bytes: u64,
    /// Records that producers dropped because their ring was full; the sources count them as dropped too.
    pub ring_dropped: u64,
    /// `none`, `batch`, or the interval as a duration.
    pub durability: String,
    /// End of the record log as published.
    pub records_end: u64,
    /// Below this address the record log is on stable storage.
    pub records_durable: u64,
    /// Bytes on the disk of the segments of all logs.
    pub segment_bytes: u64,
    /// Retention's `max_bytes`, if the configuration has it.
    pub bytes_max: Option<u64>,
    /// Bytes on the disk of the segments of the record log, and the bytes of the log in their units.
    pub records_disk_bytes: u64,
    pub records_encoded_bytes: u64,
    /// Segments of the record log that retention removed since the daemon started.
    pub evicted_segments: u64,
    /// Records that were refused or dropped and are not in `loom_losses` yet.
    pub pending_losses: u64,
    /// The number of times that appending waited for the disk, and the whole time.
    pub log_stalls: u64,
    pub log_stall_ns: u64,
    /// Connections held back because the log is full.
    pub waiting_connections: u64,
    /// The error of the log's latest operation.
    pub trouble: Option<String>,
    pub sources: Vec<SourceStatus>,
}

/// The outcome of one source's records: `received = stored + refused + dropped`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    pub id: u16,
    pub name: String,
    pub received: u64,
    pub stored: u64,
    pub refused: u64,
    pub dropped: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// Arrival time of the latest batch, in ns since the epoch.
    pub last_push_ns: Option<i64>,
}

impl DaemonStatus {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers are always JSON")
    }

    /// Reads a daemon's answer; keys of a later version are skipped.
    pub fn from_json(json: &str) -> Result<DaemonStatus, serde_json::Error> {
        serde_json::from_str(json)
    }
}

/// A duration in documents and records.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a daemon runs for less than 584 years")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_a_later_version_can_be_read() {
        let status = DaemonStatus {
            pid: 7,
            sources: vec![SourceStatus {
                name: "x".to_owned(),
                received: 3,
                ..SourceStatus::default()
            }],
            ..DaemonStatus::default()
        };
        assert_eq!(DaemonStatus::from_json(&status.to_json()).unwrap(), status);
        let later =
            r#"{"pid": 7, "new": [1], "sources": [{"name": "x", "received": 3, "hue": 1}]}"#;
        assert_eq!(DaemonStatus::from_json(later).unwrap(), status);
    }
}
