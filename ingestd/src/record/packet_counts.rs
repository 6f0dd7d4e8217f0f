//! What `tcpdump` counts: the packets that the kernel dropped before it, and when it looked.

use loom_engine::{TimeRange, Timestamp};

/// How many packets were dropped by the latest count.
#[derive(Copy, Clone, Debug)]
pub(super) struct PacketCounts {
    dropped: u64,
    /// The latest count was taken after this.
    counted: Timestamp,
    /// When `tcpdump` was first asked for the next count.
    asked: Option<Timestamp>,
}

impl PacketCounts {
    /// Of a capture that began after `now`.
    pub(super) fn new(now: Timestamp) -> PacketCounts {
        PacketCounts {
            dropped: 0,
            counted: now,
            asked: None,
        }
    }

    /// To be called before `tcpdump` is asked. It may answer several requests at once.
    pub(super) fn ask(&mut self, now: Timestamp) {
        self.asked.get_or_insert(now);
    }

    /// Reads a line of `tcpdump` that came at that time: packets lost since the last count, and between when; `None` if it has no such count. If
    /// it is asked, it gives all counts in one line; at its end it gives a line for each.
    pub(super) fn read(&mut self, line: &str, at: Timestamp) -> Option<(u64, TimeRange)> {
        let mut parts = line.trim_start_matches("tcpdump: ").split(", ");
        let dropped: u64 = parts.find_map(|part| {
            let (number, what) = part.split_once(" packet")?;
            // A single packet has no plural.
            let is_dropped = what.trim_start_matches('s') == " dropped by kernel";
            number.parse().ok().filter(|_| is_dropped)
        })?;
        let lost = dropped.saturating_sub(self.dropped);
        self.dropped += lost;
        let span = TimeRange {
            first: self.counted.min(at),
            last: at,
        };
        self.counted = self.asked.take().unwrap_or(self.counted);
        Some((lost, span))
    }
}

/// Whether a line of `tcpdump` has counts alone.
pub(super) fn has_counts(line: &str) -> bool {
    [
        " captured",
        " received by filter",
        " by kernel",
        " by interface",
    ]
    .iter()
    .any(|end| line.ends_with(end))
        && line.contains(" packet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_packets_are_read_from_both_forms_and_given_once_with_their_time() {
        let span = |first, last| TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        };
        let mut counts = PacketCounts::new(Timestamp(10));
        let all = |dropped| {
            format!(
                "tcpdump: 12 packets captured, 13 packets received by filter, {dropped} dropped by kernel"
            )
        };
        counts.ask(Timestamp(20));
        let read = counts.read(&all("0 packets"), Timestamp(21));
        assert_eq!(read, Some((0, span(10, 21))));
        // A program that stands still answers two requests at once.
        counts.ask(Timestamp(30));
        counts.ask(Timestamp(40));
        let read = counts.read(&all("1 packet"), Timestamp(45));
        assert_eq!(read, Some((1, span(20, 45))));
        let read = counts.read("250 packets dropped by kernel", Timestamp(50));
        assert_eq!(read, Some((249, span(30, 50))));
        for line in [
            "7 packets captured",
            "9 packets received by filter",
            "0 packets dropped by interface",
        ] {
            assert_eq!(counts.read(line, Timestamp(60)), None);
            assert!(has_counts(line));
        }
        assert!(!has_counts("tcpdump: pcap_loop: The interface disappeared"));
    }
}
