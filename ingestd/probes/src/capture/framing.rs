//! Finds the packets in captures (pcap and pcapng), and their times.
//!
//! The reader (`pcap.rs`) and the fuzz target of captures call it. An impossible length ends a capture; a faulty block of a pcapng with a valid
//! length does not affect others.
//!
//! `pcap-parser` 0.17 does not suffice: it cannot read modified pcap of big-endian hosts, resolutions that are powers of two, and obsolete packet
//! blocks; it takes `if_tsoffset` as little-endian everywhere, and waits for more bytes if a packet is longer than its block.

use super::headers::LinkType;

/// The length of the header of a pcap; the first block of a pcapng is not shorter.
pub const FILE_HEADER_BYTES: usize = 24;
/// The limit of an interface's name.
pub const INTERFACE_BYTES_MAX: usize = 255;
/// No capture tool writes longer packets or blocks, so a greater length is damage.
const PACKET_BYTES_MAX: usize = 64 << 20;
const NANOS_A_SECOND: i128 = 1_000_000_000;
/// The limit of interfaces in a section.
const INTERFACES_MAX: usize = 65_536;

/// A packet before its headers are read.
pub struct Packet<'a> {
    pub captured_ns: Option<i64>,
    pub interface: Option<&'a str>,
    pub link: LinkType,
    pub wire_bytes: u32,
    pub bytes: &'a [u8],
}

/// The format of a capture.
pub enum Framing {
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

/// The start of the data.
pub enum Step<'a> {
    Packet(Packet<'a>, usize),
    /// Bytes without a packet.
    Skip(usize),
    /// A packet that cannot be read, and the bytes to skip; `None` if the rest cannot be read.
    Bad(String, Option<usize>),
    More,
}

impl Framing {
    /// Recognises a capture by its first bytes.
    pub fn of_header(data: &[u8]) -> Option<Framing> {
        if data.starts_with(&Ng::SECTION.to_le_bytes()) {
            return Some(Framing::Ng(Ng::default()));
        }
        Classic::of_header(data).map(Framing::Classic)
    }

    /// The bytes to skip before the first step.
    pub fn header_bytes(&self) -> usize {
        match self {
            Framing::Classic(_) => FILE_HEADER_BYTES,
            Framing::Ng(_) => 0,
        }
    }

    /// Reads the next packet or block.
    pub fn step<'a>(&'a mut self, data: &'a [u8]) -> Step<'a> {
        match self {
            Framing::Classic(classic) => classic.step(data),
            Framing::Ng(ng) => ng.step(data),
        }
    }
}

/// The format of libpcap: one header, then packets.
pub struct Classic {
    order: ByteOrder,
    nanos_a_tick: i64,
    /// The header of one packet; the format of Alexey Kuznetsov's patch has 8 more bytes.
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
            // The upper six bits describe checksums at the end of frames.
            link: LinkType::new(order.u32(data, 20)? & 0x03ff_ffff),
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
            let reason = format!(
                "its length of {captured} bytes is damaged; the rest of the capture cannot be read"
            );
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

/// pcapng: blocks with lengths, in sections of either byte order.
pub struct Ng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

struct Interface {
    name: Option<String>,
    link: LinkType,
    /// The limit of its packets; 0 for none.
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
    /// A section header, which is the same in both byte orders.
    pub const SECTION: u32 = 0x0a0d_0d0a;
    pub const INTERFACE: u32 = 1;
    const OBSOLETE_PACKET: u32 = 2;
    const SIMPLE_PACKET: u32 = 3;
    pub const ENHANCED_PACKET: u32 = 6;
    /// Type and length before the body, and the length again after it.
    const FRAME_BYTES: usize = 12;

    fn step<'a>(&'a mut self, data: &'a [u8]) -> Step<'a> {
        let Some(kind) = self.order.u32(data, 0) else {
            return Step::More;
        };
        if kind == Ng::SECTION {
            match data.get(8..12) {
                Some([0x4d, 0x3c, 0x2b, 0x1a]) => self.order = ByteOrder::Little,
                Some([0x1a, 0x2b, 0x3c, 0x4d]) => self.order = ByteOrder::Big,
                Some(_) => return Step::Bad(
                    "its section header has no byte order; the rest of the capture cannot be read"
                        .to_owned(),
                    None,
                ),
                None => return Step::More,
            }
        }
        let Some(bytes) = self.order.u32(data, 4) else {
            return Step::More;
        };
        let bytes = bytes as usize;
        if bytes < Ng::FRAME_BYTES || !bytes.is_multiple_of(4) || bytes > PACKET_BYTES_MAX {
            let reason = format!(
                "its block length of {bytes} bytes is damaged; the rest of the capture cannot be read"
            );
            return Step::Bad(reason, None);
        }
        let Some(body) = data.get(8..bytes - 4).filter(|_| data.len() >= bytes) else {
            return Step::More;
        };
        if self.order.u32(data, bytes - 4) != Some(bytes as u32) {
            let reason =
                "the two lengths of its block differ; the rest of the capture cannot be read";
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
                    None => Step::Bad("it is longer than its block".to_owned(), Some(bytes)),
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
                    let name = name.trim_end_matches('\0');
                    let end = name.floor_char_boundary(INTERFACE_BYTES_MAX);
                    interface.name = name.get(..end).map(str::to_owned);
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
