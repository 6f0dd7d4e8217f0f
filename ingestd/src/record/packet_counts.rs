//! Reads the counters of `tcpdump`: captured packets, packets that passed its filter, and packets that the kernel dropped before it.
//!
//! On loopback the kernel counts each packet twice, when it leaves and when it arrives, and `tcpdump` captures only the second. With `-i any` packets
//! are counted once, because the filter of `packets` excludes the second copies.

use loom_engine::{TimeRange, Timestamp};

/// The latest counters, and the number of lost packets that were already reported.
#[derive(Clone, Debug)]
pub(super) struct PacketCounts {
    is_loopback: bool,
    captured: u64,
    received: u64,
    dropped: u64,
    taken: u64,
    /// The reported losses were counted after this time.
    counted: Timestamp,
    /// The time of the first request for the next counters.
    asked: Option<Timestamp>,
}

/// The number of lost packets, and the span of the loss.
pub(super) type Lost = (u64, TimeRange);

impl PacketCounts {
    /// The counters of a capture that began after `now`.
    pub(super) fn new(is_loopback: bool, now: Timestamp) -> PacketCounts {
        PacketCounts {
            is_loopback,
            captured: 0,
            received: 0,
            dropped: 0,
            taken: 0,
            counted: now,
            asked: None,
        }
    }

    /// Call it before a request to `tcpdump`, which may answer several requests at once.
    pub(super) fn ask(&mut self, now: Timestamp) {
        self.asked.get_or_insert(now);
    }

    /// Reads a line of `tcpdump`; false if it has no counters. On request all counters come in one line, at the end in a line each.
    pub(super) fn read(&mut self, line: &str) -> bool {
        let mut has_counts = false;
        for part in line.trim_start_matches("tcpdump: ").split(", ") {
            let Some((number, what)) = part.split_once(" packet") else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            // A single packet has no plural.
            match what.trim_start_matches('s') {
                " captured" => self.captured = number,
                " received by filter" => self.received = number,
                " dropped by kernel" => self.dropped = number,
                " dropped by interface" => {}
                _ => continue,
            }
            has_counts = true;
        }
        has_counts
    }

    /// The packets lost since the last report, by counters that came at this time. On loopback nobody knows yet how many of the dropped copies would have
    /// been captured: about half, of which a quarter is left to the end, so that never more are reported than were lost.
    pub(super) fn take_lost(&mut self, at: Timestamp) -> Lost {
        let lost = match self.is_loopback {
            true => (self.dropped * 3 / 8).max(self.dropped.min(1)),
            false => self.dropped,
        };
        self.take(lost, at)
    }

    /// The same at the end, when no packet is on its way to `tcpdump`.
    pub(super) fn take_lost_at_the_end(&mut self, at: Timestamp) -> Lost {
        if !self.is_loopback {
            return self.take_lost(at);
        }
        let missing = (self.received / 2).saturating_sub(self.captured);
        self.take(missing.min(self.dropped), at)
    }

    fn take(&mut self, lost: u64, at: Timestamp) -> Lost {
        let more = lost.saturating_sub(self.taken);
        self.taken += more;
        let span = TimeRange {
            first: self.counted.min(at),
            last: at,
        };
        self.counted = self.asked.take().unwrap_or(self.counted);
        (more, span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn span(first: i64, last: i64) -> TimeRange {
        TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        }
    }

    #[test]
    fn counts_are_read_from_both_forms_and_lost_packets_are_taken_once_with_their_time() {
        let mut counts = PacketCounts::new(false, Timestamp(10));
        let all = |dropped| {
            format!(
                "tcpdump: 12 packets captured, 13 packets received by filter, {dropped} dropped by kernel"
            )
        };
        counts.ask(Timestamp(20));
        assert!(counts.read(&all("0 packets")));
        assert_eq!(counts.take_lost(Timestamp(21)), (0, span(10, 21)));
        // A stopped program answers two requests at once.
        counts.ask(Timestamp(30));
        counts.ask(Timestamp(40));
        assert!(counts.read(&all("1 packet")));
        assert_eq!(counts.take_lost(Timestamp(45)), (1, span(20, 45)));
        assert!(counts.read("250 packets dropped by kernel"));
        let at_the_end = counts.take_lost_at_the_end(Timestamp(50));
        assert_eq!(at_the_end, (249, span(30, 50)));
        assert!(!counts.read("tcpdump: pcap_loop: The interface disappeared"));
    }

    #[test]
    fn on_loopback_a_packet_that_is_counted_twice_is_lost_once() {
        let mut counts = PacketCounts::new(true, Timestamp(0));
        for line in [
            "564 packets captured",
            "200000 packets received by filter",
            "198871 packets dropped by kernel",
        ] {
            assert!(counts.read(line));
        }
        assert_eq!(counts.take_lost(Timestamp(1)).0, 74_576);
        assert_eq!(counts.take_lost_at_the_end(Timestamp(2)).0, 24_860);
        assert_eq!(counts.captured + counts.taken, 100_000);
    }
}
