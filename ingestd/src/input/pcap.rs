//! Captures: pcap and pcapng, of either byte order and any time resolution, from files and pipes.
//!
//! This file finds packets and their times; `packet.rs` looks into them. A packet that cannot be looked into is
//! kept all the same. What cannot be framed (an impossible length) ends a pcap, which has no way to find the next
//! packet; a pcapng goes on at the next block.

use anyhow::bail;

use super::blocks::Blocks;
use super::columns::Column;
use super::packet::{LinkType, PacketBuilder, columns};
use super::rows::Rows;
use super::{BATCH_BYTES, BATCH_ROWS, Reader, Wanted};

/// No capture tool writes longer packets or blocks; a greater length is damage.
const PACKET_BYTES_MAX: usize = 64 << 20;
const NANOS_A_SECOND: i128 = 1_000_000_000;
/// How many interfaces a section may describe.
const INTERFACES_MAX: usize = 65_536;

pub(crate) struct Pcap {
    blocks: Blocks,
    format: Format,
    columns: Vec<Column>,
    wanted: Vec<usize>,
    packet_bytes_max: usize,
    /// The file was damaged and is not read further.
    stopped: bool,
}

/// Packets as they are framed, before anybody looks into them.
struct Packet<'a> {
    captured_ns: Option<i64>,
    interface: Option<&'a str>,
    link: LinkType,
    wire_bytes: u32,
    bytes: &'a [u8],
}

enum Format {
    Classic(Classic),
    Ng(Ng),
}

#[derive(Copy, Clone)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    fn i64(self, bytes: &[u8], at: usize) -> Option<i64> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => i64::from_le_bytes(bytes),
            ByteOrder::Big => i64::from_be_bytes(bytes),
        })
    }
}

/// What is at the beginning of the data.
enum Step<'a> {
    Packet(Packet<'a>, usize),
    /// So many bytes that hold no packet.
    Skip(usize),
    /// A packet that cannot be read, and how many bytes to skip, if anything can follow.
    Bad(String, Option<usize>),
    More,
}

impl Pcap {
    /// Reads the header. `payload_bytes_max` is the longest payload of a record.
    pub(crate) fn open(mut blocks: Blocks, payload_bytes_max: usize) -> anyhow::Result<Pcap> {
        let whole = blocks.fill_to(24)?;
        let format = match blocks.data() {
            data if data.starts_with(&Ng::SECTION.to_le_bytes()) => Format::Ng(Ng::default()),
            data if whole => match Classic::of_header(data) {
                Some(classic) => Format::Classic(classic),
                None => bail!("{} is neither pcap nor pcapng", blocks.name()),
            },
            [] => bail!("{} is empty; a capture begins with a header", blocks.name()),
            _ => bail!("{} is neither pcap nor pcapng", blocks.name()),
        };
        if let Format::Classic(_) = format {
            blocks.consume(24);
        }
        Ok(Pcap {
            blocks,
            format,
            columns: columns(),
            wanted: Vec::new(),
            packet_bytes_max: PacketBuilder::packet_bytes_max(payload_bytes_max),
            stopped: false,
        })
    }

    /// Consumes the whole packets among the bytes at hand.
    fn parse(&mut self) -> anyhow::Result<Rows> {
        let mut builder = PacketBuilder::new(self.packet_bytes_max);
        let mut bad = Vec::new();
        let (mut count, mut read) = (0, 0);
        while !self.stopped && read < BATCH_BYTES && count < BATCH_ROWS {
            let data = self.blocks.data().get(read..).unwrap_or_default();
            let step = match &mut self.format {
                Format::Classic(classic) => classic.step(data),
                Format::Ng(ng) => ng.step(data),
            };
            match step {
                Step::Packet(packet, bytes) => {
                    builder.append(
                        packet.captured_ns,
                        packet.interface,
                        packet.link,
                        packet.wire_bytes,
                        packet.bytes,
                    );
                    count += 1;
                    read += bytes;
                }
                Step::Skip(bytes) => read += bytes,
                Step::Bad(reason, bytes) => {
                    builder.append_nulls();
                    bad.push((count, reason));
                    count += 1;
                    read += bytes.unwrap_or(data.len());
                    self.stopped = bytes.is_none();
                }
                Step::More if self.blocks.ended() && !data.is_empty() => {
                    builder.append_nulls();
                    bad.push((count, "the capture ends within it".to_owned()));
                    count += 1;
                    read += data.len();
                }
                Step::More => break,
            }
        }
        self.blocks.consume(read);
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

    fn row_noun(&self) -> &'static str {
        "packet"
    }
}

/// The format of libpcap: one header, then packets.
struct Classic {
    order: ByteOrder,
    nanos_a_tick: i64,
    /// Of one packet; the format that Alexey Kuznetsov's patch writes has 8 more bytes.
    header_bytes: usize,
    link: LinkType,
}

impl Classic {
    fn of_header(data: &[u8]) -> Option<Classic> {
        let (order, nanos_a_tick, header_bytes) = match data.first_chunk()? {
            [0xd4, 0xc3, 0xb2, 0xa1] => (ByteOrder::Little, 1000, 16),
            [0xa1, 0xb2, 0xc3, 0xd4] => (ByteOrder::Big, 1000, 16),
            [0x4d, 0x3c, 0xb2, 0xa1] => (ByteOrder::Little, 1, 16),
            [0xa1, 0xb2, 0x3c, 0x4d] => (ByteOrder::Big, 1, 16),
            [0x34, 0xcd, 0xb2, 0xa1] => (ByteOrder::Little, 1000, 24),
            [0xa1, 0xb2, 0xcd, 0x34] => (ByteOrder::Big, 1000, 24),
            _ => return None,
        };
        Some(Classic {
            order,
            nanos_a_tick,
            header_bytes,
            // The upper bits tell of frame checksums.
            link: LinkType::new(order.u32(data, 20)? & 0x0fff_ffff),
        })
    }

    fn step<'a>(&self, data: &'a [u8]) -> Step<'a> {
        self.packet(data).unwrap_or(Step::More)
    }

    fn packet<'a>(&self, data: &'a [u8]) -> Option<Step<'a>> {
        let word = |at| self.order.u32(data, at);
        let (seconds, ticks, captured, wire_bytes) = (word(0)?, word(4)?, word(8)?, word(12)?);
        let captured = captured as usize;
        if captured > PACKET_BYTES_MAX {
            let reason = format!("a length of {captured} bytes is damage; the rest cannot be read");
            return Some(Step::Bad(reason, None));
        }
        let end = self.header_bytes + captured;
        let bytes = data.get(self.header_bytes..end)?;
        let nanos = i64::from(seconds) * 1_000_000_000 + i64::from(ticks) * self.nanos_a_tick;
        let packet = Packet {
            captured_ns: Some(nanos),
            interface: None,
            link: self.link,
            wire_bytes,
            bytes,
        };
        Some(Step::Packet(packet, end))
    }
}

/// pcapng: blocks that tell their lengths, in sections of either byte order.
struct Ng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

struct Interface {
    name: Option<String>,
    link: LinkType,
    /// The greatest length of its packets; 0 for any.
    snap_bytes: u32,
    ticks_a_second: i128,
    offset_seconds: i64,
}

impl Default for Ng {
    fn default() -> Ng {
        Ng {
            order: ByteOrder::Little,
            interfaces: Vec::new(),
        }
    }
}

impl Ng {
    /// A section header; reads the same in both byte orders.
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const OBSOLETE_PACKET: u32 = 2;
    const SIMPLE_PACKET: u32 = 3;
    const ENHANCED_PACKET: u32 = 6;
    /// Type and length before the body, the length again behind it.
    const FRAME_BYTES: usize = 12;

    fn step<'a>(&'a mut self, data: &'a [u8]) -> Step<'a> {
        let Some(kind) = self.order.u32(data, 0) else {
            return Step::More;
        };
        if kind == Ng::SECTION {
            match data.get(8..12) {
                Some([0x4d, 0x3c, 0x2b, 0x1a]) => self.order = ByteOrder::Little,
                Some([0x1a, 0x2b, 0x3c, 0x4d]) => self.order = ByteOrder::Big,
                Some(_) => return Step::Bad("its section has no byte order".to_owned(), None),
                None => return Step::More,
            }
        }
        let Some(bytes) = self.order.u32(data, 4) else {
            return Step::More;
        };
        let bytes = bytes as usize;
        if bytes < Ng::FRAME_BYTES || !bytes.is_multiple_of(4) || bytes > PACKET_BYTES_MAX {
            let reason = format!("a block of {bytes} bytes is damage; the rest cannot be read");
            return Step::Bad(reason, None);
        }
        let Some(body) = data.get(8..bytes - 4).filter(|_| data.len() >= bytes) else {
            return Step::More;
        };
        if self.order.u32(data, bytes - 4) != Some(bytes as u32) {
            let reason = "the two lengths of its block differ; the rest cannot be read";
            return Step::Bad(reason.to_owned(), None);
        }
        match kind {
            Ng::SECTION => self.interfaces.clear(),
            Ng::INTERFACE => {
                let interface = Interface::of_body(self.order, body);
                if self.interfaces.len() < INTERFACES_MAX {
                    self.interfaces.extend(interface);
                }
            }
            Ng::ENHANCED_PACKET | Ng::OBSOLETE_PACKET | Ng::SIMPLE_PACKET => {
                return match self.packet(kind, body) {
                    Some(packet) => Step::Packet(packet, bytes),
                    None => Step::Bad("its block is cut short".to_owned(), Some(bytes)),
                };
            }
            _ => {}
        }
        Step::Skip(bytes)
    }

    fn packet<'a>(&'a self, kind: u32, body: &'a [u8]) -> Option<Packet<'a>> {
        let word = |at| self.order.u32(body, at);
        if kind == Ng::SIMPLE_PACKET {
            let wire_bytes = word(0)?;
            let interface = self.interfaces.first();
            let snap = interface.map_or(0, |interface| interface.snap_bytes as usize);
            let limit = if snap == 0 { usize::MAX } else { snap };
            let captured = (wire_bytes as usize).min(limit).min(body.len() - 4);
            return Some(Packet {
                captured_ns: None,
                interface: interface.and_then(|interface| interface.name.as_deref()),
                link: interface.map_or(LinkType::new(u32::MAX), |interface| interface.link),
                wire_bytes,
                bytes: body.get(4..4 + captured)?,
            });
        }
        let number = match kind {
            Ng::OBSOLETE_PACKET => usize::from(self.order.u16(body, 0)?),
            _ => word(0)? as usize,
        };
        let interface = self.interfaces.get(number);
        let ticks = i128::from(word(4)?) << 32 | i128::from(word(8)?);
        let captured = word(12)? as usize;
        Some(Packet {
            captured_ns: interface.and_then(|interface| interface.nanoseconds(ticks)),
            interface: interface.and_then(|interface| interface.name.as_deref()),
            link: interface.map_or(LinkType::new(u32::MAX), |interface| interface.link),
            wire_bytes: word(16)?,
            bytes: body.get(20..20 + captured)?,
        })
    }
}

impl Interface {
    const NAME: u16 = 2;
    const RESOLUTION: u16 = 9;
    const OFFSET: u16 = 14;

    fn of_body(order: ByteOrder, body: &[u8]) -> Option<Interface> {
        let mut interface = Interface {
            name: None,
            link: LinkType::new(u32::from(order.u16(body, 0)?)),
            snap_bytes: order.u32(body, 4)?,
            ticks_a_second: 1_000_000,
            offset_seconds: 0,
        };
        let mut options = body.get(8..)?;
        while let (Some(code), Some(bytes)) = (order.u16(options, 0), order.u16(options, 2)) {
            let bytes = usize::from(bytes);
            let Some(value) = options.get(4..4 + bytes) else {
                break;
            };
            match (code, value) {
                (0, _) => break,
                (Interface::NAME, name) => {
                    let name = String::from_utf8_lossy(name);
                    interface.name = Some(name.trim_end_matches('\0').to_owned());
                }
                (Interface::RESOLUTION, [power, ..]) => {
                    interface.ticks_a_second = match power & 0x7f {
                        power_of_two if power & 0x80 != 0 => 1 << power_of_two.min(63),
                        power_of_ten => 10_i128.pow(u32::from(power_of_ten.min(18))),
                    };
                }
                (Interface::OFFSET, offset) => {
                    interface.offset_seconds = order.i64(offset, 0).unwrap_or(0);
                }
                _ => {}
            }
            options = options
                .get(4 + bytes.next_multiple_of(4)..)
                .unwrap_or_default();
        }
        Some(interface)
    }

    fn nanoseconds(&self, ticks: i128) -> Option<i64> {
        let nanos = ticks * NANOS_A_SECOND / self.ticks_a_second;
        (nanos + i128::from(self.offset_seconds) * NANOS_A_SECOND)
            .try_into()
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{Loaded, load, options, try_load};

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
        interface.extend([half(2), half(2)].concat());
        interface.extend(*b"lo\0\0");
        interface.extend([half(9), half(1)].concat());
        interface.extend([resolution, 0, 0, 0]);
        interface.extend([half(0), half(0)].concat());
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
        assert!(loaded.refused[0].1.contains("the rest cannot be read"));
        let mut file = ng(u32::to_le_bytes, 6, &[(0, &packet), (1, &packet)]);
        let length = file.len();
        file[length - 4] ^= 1;
        let loaded = capture(&file);
        assert_eq!(loaded.rows.len(), 1);
        assert_eq!(loaded.refused.len(), 1);
    }

    #[test]
    fn a_packet_longer_than_a_record_is_cut() {
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
