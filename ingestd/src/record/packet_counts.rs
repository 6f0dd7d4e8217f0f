//! What `tcpdump` counts: the packets that it captured, those that passed its filter, and those that the kernel dropped before it.
//!
//! On loopback the kernel counts each packet twice, as it leaves and as it arrives, and `tcpdump` captures the second only.

/// The latest counts, and how many lost packets have been taken from them.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketCounts {
    is_loopback: bool,
    captured: u64,
    received: u64,
    dropped: u64,
    taken: u64,
}

impl PacketCounts {
    pub(super) fn new(is_loopback: bool) -> PacketCounts {
        PacketCounts {
            is_loopback,
            ..PacketCounts::default()
        }
    }

    /// Reads a line of `tcpdump`; false if it has no counts. If it is asked, it gives all in one line; at its end it gives a line for each.
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

    /// Packets lost since they were last taken.
    pub(super) fn take_lost(&mut self) -> u64 {
        let lost = if self.is_loopback {
            self.dropped.div_ceil(2)
        } else {
            self.dropped
        };
        self.take(lost)
    }

    /// The same, once no packet is on its way to `tcpdump` any more.
    pub(super) fn take_lost_at_the_end(&mut self) -> u64 {
        if !self.is_loopback {
            return self.take_lost();
        }
        let missing = (self.received / 2).saturating_sub(self.captured);
        self.take(missing.min(self.dropped))
    }

    fn take(&mut self, lost: u64) -> u64 {
        let more = lost.saturating_sub(self.taken);
        self.taken += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_both_forms_and_lost_packets_are_taken_once() {
        let mut counts = PacketCounts::new(false);
        assert!(counts.read(
            "tcpdump: 12 packets captured, 13 packets received by filter, 1 packet dropped by kernel"
        ));
        assert_eq!((counts.take_lost(), counts.take_lost()), (1, 0));
        assert!(counts.read("250 packets dropped by kernel"));
        assert_eq!(counts.take_lost_at_the_end(), 249);
        assert!(!counts.read("tcpdump: pcap_loop: The interface disappeared"));
    }

    #[test]
    fn on_loopback_a_packet_that_is_counted_twice_is_lost_once() {
        let mut counts = PacketCounts::new(true);
        for line in [
            "564 packets captured",
            "200000 packets received by filter",
            "198871 packets dropped by kernel",
        ] {
            assert!(counts.read(line));
        }
        assert_eq!(counts.take_lost(), 99_436);
        assert_eq!(counts.take_lost_at_the_end(), 0);
        assert_eq!(counts.captured + counts.taken, 100_000);
    }
}
