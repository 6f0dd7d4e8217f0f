//! Captures, pcap and pcapng: where packets begin and end, and what their headers say.
//!
//! Input: the file. That rows are made of what is found here is Arrow's part, and is tested where it is at home.

use std::collections::BTreeSet;

use crate::{SOUND, label};
use loom_probes::capture::framing::{Framing, INTERFACE_BYTES_MAX, Packet, Step};
use loom_probes::capture::headers;

pub fn run(input: &[u8]) -> String {
    let Some(mut framing) = Framing::of_header(input) else {
        return "neither pcap nor pcapng".to_owned();
    };
    let mut rest = input.get(framing.header_bytes()..).unwrap_or_default();
    let mut errors = BTreeSet::new();
    while !rest.is_empty() {
        let bytes = match framing.step(rest) {
            Step::Packet(packet, bytes) => {
                look_into(&packet);
                bytes
            }
            Step::Skip(bytes) => bytes,
            Step::Bad(reason, bytes) => {
                errors.insert(label(&reason));
                bytes.unwrap_or(rest.len())
            }
            Step::More => {
                errors.insert("the capture ends within it".to_owned());
                rest.len()
            }
        };
        assert!(bytes > 0, "a step that leads nowhere");
        let Some(after) = rest.get(bytes..) else {
            panic!("a step of {bytes} bytes with {} left", rest.len());
        };
        rest = after;
    }
    if errors.is_empty() {
        return SOUND.to_owned();
    }
    errors.into_iter().collect::<Vec<_>>().join(" | ")
}

fn look_into(packet: &Packet<'_>) {
    let name_bytes = packet.interface.map_or(0, str::len);
    assert!(name_bytes <= INTERFACE_BYTES_MAX, "{name_bytes}");
    let headers = headers::dissect(packet.link, packet.bytes);
    assert!(
        headers.tcp_flags.is_none() || headers.protocol == Some(6),
        "{headers:?}"
    );
    assert_eq!(
        headers.src_addr.is_some(),
        headers.dst_addr.is_some(),
        "{headers:?}"
    );
    std::hint::black_box((packet.captured_ns, packet.wire_bytes, headers));
}
