//! Reads captures: pcap and pcapng, of either byte order and any time resolution, from files and pipes.
//!
//! `loom_probes::capture` finds packets and their headers, `packet` makes rows of them. A packet with unreadable headers is kept.

use anyhow::bail;
use loom_probes::capture::framing::{FILE_HEADER_BYTES, Framing, Packet, Step};
use loom_probes::capture::headers::LinkType;

use super::blocks::Blocks;
use super::columns::Column;
use super::interfaces::Names;
use super::packet::{PACKET, PacketBuilder, columns};
use super::rows::Rows;
use super::{BATCH_BYTES, BATCH_ROWS, LoadOptions, Reader, Wanted};
use crate::counted;

pub(crate) struct Pcap {
    blocks: Blocks,
    framing: Framing,
    columns: Vec<Column>,
    wanted: Vec<usize>,
    names: Names,
    packet_bytes_max: usize,
    /// The number of truncated packets, until it is noted.
    cut: u64,
    /// The file is damaged and is not read further.
    stopped: bool,
}

/// The row of a packet that cannot be read; it is refused.
const UNREAD: Packet<'static> = Packet {
    captured_ns: None,
    interface: None,
    link: LinkType::Unknown,
    wire_bytes: 0,
    bytes: &[],
};

impl Pcap {
    /// Reads the header.
    pub(crate) fn open(mut blocks: Blocks, options: &LoadOptions) -> anyhow::Result<Pcap> {
        blocks.fill_to(FILE_HEADER_BYTES)?;
        let Some(framing) = Framing::of_header(blocks.data()) else {
            let name = blocks.name();
            let why = match blocks.data() {
                [] => "it is empty",
                _ => "it begins neither as pcap nor as pcapng",
            };
            bail!("cannot read {name} as a capture: {why}");
        };
        blocks.consume(framing.header_bytes());
        Ok(Pcap {
            blocks,
            framing,
            columns: columns(),
            wanted: Vec::new(),
            names: Names::new(options.interfaces.clone()),
            packet_bytes_max: PacketBuilder::packet_bytes_max(options.payload_bytes_max),
            cut: 0,
            stopped: false,
        })
    }

    /// Reads all complete packets in the buffer.
    fn parse(&mut self) -> anyhow::Result<Rows> {
        let mut builder = PacketBuilder::new(self.packet_bytes_max);
        self.names.renew();
        let mut bad = Vec::new();
        let (mut count, mut read) = (0, 0);
        while !self.stopped && read < BATCH_BYTES && count < BATCH_ROWS {
            let data = self.blocks.data().get(read..).unwrap_or_default();
            match self.framing.step(data) {
                Step::Packet(packet, bytes) => {
                    builder.append(&packet, self.names.of(&packet));
                    count += 1;
                    read += bytes;
                }
                Step::Skip(bytes) => read += bytes,
                Step::Bad(reason, bytes) => {
                    builder.append(&UNREAD, None);
                    bad.push((count, reason));
                    count += 1;
                    read += bytes.unwrap_or(data.len());
                    self.stopped = bytes.is_none();
                }
                Step::More if self.blocks.ended() && !data.is_empty() => {
                    builder.append(&UNREAD, None);
                    bad.push((count, "the capture ends within it".to_owned()));
                    count += 1;
                    read += data.len();
                }
                Step::More => break,
            }
        }
        self.blocks.consume(read);
        self.cut += builder.cut;
        let mut rows = Rows::of_batch(&builder.finish()?, &self.wanted)?;
        rows.bad = bad;
        Ok(rows)
    }
}

impl Reader for Pcap {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn select(&mut self, wanted: Vec<Wanted>) {
        self.wanted = wanted.iter().map(|wanted| wanted.column).collect();
    }

    fn next(&mut self) -> anyhow::Result<Option<Rows>> {
        loop {
            let rows = self.parse()?;
            if rows.count > 0 {
                return Ok(Some(rows));
            }
            if self.stopped || !self.blocks.fill()? && self.blocks.data().is_empty() {
                return Ok(None);
            }
        }
    }

    fn fraction(&self) -> Option<f64> {
        self.blocks.fraction()
    }

    /// Reports truncated packets at the end.
    fn take_notes(&mut self) -> Vec<String> {
        let at_end = self.stopped || self.blocks.ended() && self.blocks.data().is_empty();
        let is_kept = |column: &usize| self.columns.get(*column).is_some_and(|c| c.name == PACKET);
        if !at_end || self.cut == 0 || !self.wanted.iter().any(is_kept) {
            return Vec::new();
        }
        let cut = std::mem::take(&mut self.cut);
        vec![format!(
            "{} of {} longer than a record holds: field 'packet' keeps the first {} bytes, captured_bytes the true length",
            counted(cut, "packet"),
            self.blocks.name(),
            self.packet_bytes_max
        )]
    }

    fn row_noun(&self) -> &'static str {
        "packet"
    }
}

#[cfg(test)]
mod tests {
    use crate::input::testing::{Loaded, load, options, try_load};
    use loom_probes::capture::framing::Ng;

    fn capture(bytes: &[u8]) -> Loaded {
        load(bytes, crate::input::Format::Pcap, options())
    }

    /// Ethernet, IPv4, TCP with SYN and ACK: 54 bytes and a payload.
    fn tcp() -> Vec<u8> {
        let mut packet = vec![0; 12];
        packet.extend([0x08, 0x00]);
        packet.extend([
            0x45, 0, 0, 43, 0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 10, 0, 0, 2,
        ]);
        packet.extend([
            0x18, 0xeb, 0xc0, 0x01, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
        ]);
        packet.extend(*b"abc");
        packet
    }

    type Word = fn(u32) -> [u8; 4];

    fn classic(magic: u32, word: Word, link: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = word(magic).to_vec();
        file.extend(if word(1)[0] == 1 {
            [2, 0, 4, 0]
        } else {
            [0, 2, 0, 4]
        });
        for field in [0, 0, 65_535, link] {
            file.extend(word(field));
        }
        for (seconds, ticks, bytes) in packets {
            for field in [*seconds, *ticks, bytes.len() as u32, bytes.len() as u32 + 7] {
                file.extend(word(field));
            }
            file.extend_from_slice(bytes);
        }
        file
    }

    fn block(word: Word, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let mut block = word(kind).to_vec();
        block.extend(word(12 + padded as u32));
        block.extend_from_slice(body);
        block.resize(8 + padded, 0);
        block.extend(word(12 + padded as u32));
        block
    }

    fn ng(word: Word, resolution: u8, packets: &[(u64, &[u8])]) -> Vec<u8> {
        ng_with(word, &[(9, &[resolution])], packets)
    }

    /// A section with one interface, which has these options and a name.
    fn ng_with(word: Word, options: &[(u16, &[u8])], packets: &[(u64, &[u8])]) -> Vec<u8> {
        let half: fn(u16) -> [u8; 2] = if word(1)[0] == 1 {
            u16::to_le_bytes
        } else {
            u16::to_be_bytes
        };
        let mut section = word(0x1a2b_3c4d).to_vec();
        section.extend([half(1), half(0)].concat());
        section.extend([0xff; 8]);
        let mut file = block(word, Ng::SECTION, &section);
        let mut interface = [half(1), half(0)].concat();
        interface.extend(word(0));
        for (code, value) in [&[(2, &b"lo"[..])], options, &[(0, &[])]].concat() {
            interface.extend([half(code), half(value.len() as u16)].concat());
            interface.extend_from_slice(value);
            interface.resize(interface.len().next_multiple_of(4), 0);
        }
        file.extend(block(word, Ng::INTERFACE, &interface));
        file.extend(block(word, 0x0bad, b"unknown"));
        for (ticks, bytes) in packets {
            let mut body = Vec::new();
            for field in [
                0,
                (ticks >> 32) as u32,
                *ticks as u32,
                bytes.len() as u32,
                99,
            ] {
                body.extend(word(field));
            }
            body.extend_from_slice(bytes);
            file.extend(block(word, Ng::ENHANCED_PACKET, &body));
        }
        file
    }

    #[test]
    fn both_byte_orders_and_resolutions() {
        let packet = tcp();
        let row = |time: &str| {
            let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{time}|-|6|127.0.0.1|10.0.0.2|6379|49153|18|57|64|{hex}")
        };
        let packets = [(1, 5, &packet[..]), (4_294_967_295, 999_999, &packet[..])];
        for word in [u32::to_le_bytes as Word, u32::to_be_bytes] {
            let loaded = capture(&classic(0xa1b2_c3d4, word, 1, &packets));
            assert_eq!(
                loaded.lines(),
                [row("1000005000"), row("4294967295999999000")]
            );
            let loaded = capture(&classic(0xa1b2_3c4d, word, 1, &packets));
            assert_eq!(
                loaded.lines(),
                [row("1000000005"), row("4294967295000999999")]
            );
        }
    }

    #[test]
    fn the_fields_are_those_of_the_contract() {
        assert_eq!(
            capture(&classic(0xa1b2_c3d4, u32::to_le_bytes, 1, &[])).fields(),
            [
                "captured timestamp_ns?",
                "interface utf8?",
                "protocol u16?",
                "src_addr utf8?",
                "dst_addr utf8?",
                "src_port u16?",
                "dst_port u16?",
                "tcp_flags u8?",
                "captured_bytes u32",
                "wire_bytes u32",
                "packet bytes"
            ]
        );
    }

    #[test]
    fn sections_of_pcapng_in_both_byte_orders() {
        let packet = tcp();
        let mut file = ng(u32::to_le_bytes, 9, &[(1_700_000_000_000_000_001, &packet)]);
        file.extend(ng(u32::to_be_bytes, 6, &[(1_700_000_000_000_001, &packet)]));
        file.extend(ng(u32::to_le_bytes, 0x81, &[(3, &packet[..20])]));
        let loaded = capture(&file);
        let lines = loaded.lines();
        assert!(
            lines[0]
                .starts_with("1700000000000000001|lo|6|127.0.0.1|10.0.0.2|6379|49153|18|57|99|")
        );
        assert!(lines[1].starts_with("1700000000000001000|lo|6|"));
        assert!(lines[2].starts_with("1500000000|lo|-|-|-|-|-|-|20|99|"));
        assert!(loaded.refused.is_empty());
    }

    #[test]
    fn modified_pcap_in_both_byte_orders() {
        let packet = tcp();
        for word in [u32::to_le_bytes as Word, u32::to_be_bytes] {
            let mut file = classic(0xa1b2_cd34, word, 1, &[]);
            for seconds in [1, 2] {
                for field in [seconds, 5, packet.len() as u32, 99, 0, 0] {
                    file.extend(word(field));
                }
                file.extend_from_slice(&packet);
            }
            let lines = capture(&file).lines();
            assert_eq!(lines.len(), 2);
            assert!(lines[1].starts_with("2000005000|-|6|127.0.0.1|10.0.0.2|"));
        }
    }

    #[test]
    fn times_are_moved_by_the_offset_of_their_interface_in_both_byte_orders() {
        let packet = tcp();
        for word in [u32::to_le_bytes as Word, u32::to_be_bytes] {
            let offset = match word(1) {
                [1, ..] => (-3600_i64).to_le_bytes(),
                _ => (-3600_i64).to_be_bytes(),
            };
            let file = ng_with(word, &[(14, &offset)], &[(3_601_000_000, &packet)]);
            let lines = capture(&file).lines();
            assert!(lines[0].starts_with("1000000000|lo|6|"), "{}", lines[0]);
        }
    }

    #[test]
    fn obsolete_and_simple_packet_blocks_are_read() {
        let packet = tcp();
        let mut file = ng(u32::to_le_bytes, 6, &[]);
        let [low, high] = [packet.len() as u32, 99].map(u32::to_le_bytes);
        let obsolete = [&[0; 8][..], &[7, 0, 0, 0], &low, &high, &packet].concat();
        file.extend(block(u32::to_le_bytes, 2, &obsolete));
        file.extend(block(u32::to_le_bytes, 3, &[&low[..], &packet].concat()));
        let lines = capture(&file).lines();
        assert!(lines[0].starts_with("7000|lo|6|127.0.0.1|10.0.0.2|6379|49153|18|57|99|"));
        assert!(lines[1].starts_with("-|lo|6|127.0.0.1|10.0.0.2|6379|49153|18|57|57|"));
    }

    #[test]
    fn a_packet_longer_than_its_block_costs_no_other() {
        let packet = tcp();
        let mut file = ng(u32::to_le_bytes, 6, &[]);
        let claims = [&[0; 12][..], &200_u32.to_le_bytes(), &[0; 4], &packet].concat();
        file.extend(block(u32::to_le_bytes, Ng::ENHANCED_PACKET, &claims));
        file.extend(ng(u32::to_be_bytes, 6, &[(1, &packet)]));
        let loaded = capture(&file);
        assert_eq!(loaded.rows.len(), 1);
        assert_eq!(
            loaded.refused,
            [(1, "it is longer than its block".to_owned())]
        );
    }

    #[test]
    fn a_packet_cut_short_keeps_what_is_there() {
        let packet = tcp();
        for (captured, expected) in [
            (0, "-|-|-|-|-|-|0"),
            (13, "-|-|-|-|-|-|13"),
            (33, "-|-|-|-|-|-|33"),
            (34, "6|127.0.0.1|10.0.0.2|-|-|-|34"),
            (38, "6|127.0.0.1|10.0.0.2|6379|49153|-|38"),
            (48, "6|127.0.0.1|10.0.0.2|6379|49153|18|48"),
        ] {
            let file = classic(
                0xa1b2_c3d4,
                u32::to_le_bytes,
                1,
                &[(0, 0, &packet[..captured])],
            );
            let line = capture(&file).lines().remove(0);
            assert!(
                line.starts_with(&format!("0|-|{expected}|")),
                "{captured}: {line}"
            );
        }
    }

    // case Network and input: malformed rows and packets
    #[test]
    fn the_end_within_a_packet_refuses_it_and_keeps_those_before() {
        let packet = tcp();
        let file = classic(
            0xa1b2_c3d4,
            u32::to_le_bytes,
            1,
            &[(0, 0, &packet), (1, 0, &packet)],
        );
        let loaded = capture(&file[..file.len() - 1]);
        assert_eq!(loaded.rows.len(), 1);
        assert_eq!(
            loaded.refused,
            [(2, "the capture ends within it".to_owned())]
        );
    }

    #[test]
    fn an_impossible_length_is_named() {
        let packet = tcp();
        let mut file = classic(
            0xa1b2_c3d4,
            u32::to_le_bytes,
            1,
            &[(0, 0, &packet), (1, 0, &packet)],
        );
        let second = 24 + 16 + packet.len();
        file[second + 8..second + 12].fill(0xff);
        let loaded = capture(&file);
        assert_eq!(loaded.rows.len(), 1);
        assert_eq!(loaded.refused[0].0, 2);
        assert!(
            loaded.refused[0]
                .1
                .contains("the rest of the capture cannot be read")
        );
        let mut file = ng(u32::to_le_bytes, 6, &[(0, &packet), (1, &packet)]);
        let length = file.len();
        file[length - 4] ^= 1;
        let loaded = capture(&file);
        assert_eq!(loaded.rows.len(), 1);
        assert_eq!(loaded.refused.len(), 1);
    }

    #[test]
    fn a_packet_longer_than_a_record_is_cut_and_counted() {
        let mut packet = tcp();
        packet.resize(70_000, 1);
        let loaded = capture(&classic(
            0xa1b2_c3d4,
            u32::to_le_bytes,
            1,
            &[(0, 0, &packet)],
        ));
        assert!(loaded.refused.is_empty());
        let row = &loaded.rows[0];
        assert_eq!(row[8].as_deref(), Some("70000"));
        assert!(row[10].as_ref().unwrap().len() / 2 > 65_000);
        let [note] = loaded.notes.as_slice() else {
            panic!("{:?}", loaded.notes);
        };
        assert!(note.starts_with("1 packet of '") && note.contains("longer than a record holds"));
    }

    #[test]
    fn frame_checksums_do_not_hide_the_link_type() {
        // Four bytes of checksum behind each frame, as bits 28 to 31 and 26 say.
        let link = 0x4400_0001;
        let packet = [tcp(), vec![0xde, 0xad, 0xbe, 0xef]].concat();
        let file = classic(0xa1b2_c3d4, u32::to_be_bytes, link, &[(0, 0, &packet)]);
        let line = capture(&file).lines().remove(0);
        assert!(line.starts_with("0|-|6|127.0.0.1|10.0.0.2|6379|"), "{line}");
    }

    #[test]
    fn no_bytes_panic() {
        let packet = tcp();
        let files = [
            classic(0xa1b2_c3d4, u32::to_le_bytes, 1, &[(0, 0, &packet)]),
            ng(u32::to_be_bytes, 6, &[(0, &packet)]),
        ];
        for file in &files {
            for at in 0..file.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut file = file.clone();
                    file[at] ^= flip;
                    let _ = try_load(&file, crate::input::Format::Pcap, options());
                }
                let _ = try_load(&file[..at], crate::input::Format::Pcap, options());
            }
        }
    }
}
