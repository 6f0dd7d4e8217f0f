//! One captured packet as a row: who sent it to whom, as far as the captured bytes tell.
//!
//! Whatever is missing (a packet cut short, another protocol, an unknown link type) is NULL; the packet itself is
//! always kept, cut only to what a record holds.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Int64Builder, RecordBatch, StringBuilder, UInt8Builder, UInt16Builder,
    UInt32Builder,
};
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket};
use loom_engine::schema::FieldType;

use super::columns::Column;

/// How a packet begins, by the numbers of tcpdump.org's list of link types.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkType {
    Ethernet,
    /// An address family of 4 bytes, in the capturing host's byte order.
    Loopback,
    Ip,
    /// Linux "cooked": 16 bytes, the protocol in the last two.
    Sll,
    /// Linux "cooked", second version: 20 bytes, the protocol in the first two.
    Sll2,
    Unknown,
}

impl LinkType {
    pub(crate) fn new(number: u32) -> LinkType {
        match number {
            1 => LinkType::Ethernet,
            0 | 108 => LinkType::Loopback,
            12 | 14 | 101 | 228 | 229 => LinkType::Ip,
            113 => LinkType::Sll,
            276 => LinkType::Sll2,
            _ => LinkType::Unknown,
        }
    }
}

/// Numbers of IP protocols, and of EtherTypes (from 1536 on) for what is not IP.
const PROTOCOLS: [(u16, &str); 16] = [
    (1, "ICMP"),
    (2, "IGMP"),
    (6, "TCP"),
    (17, "UDP"),
    (41, "IPv6"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPv6"),
    (89, "OSPF"),
    (132, "SCTP"),
    (0x0806, "ARP"),
    (0x8863, "PPPoE discovery"),
    (0x8864, "PPPoE"),
    (0x88cc, "LLDP"),
    (0x88f7, "PTP"),
];

/// The columns of a capture.
pub(crate) fn columns() -> Vec<Column> {
    let labels: BTreeMap<i128, String> = PROTOCOLS
        .iter()
        .map(|(number, name)| (i128::from(*number), (*name).to_owned()))
        .collect();
    vec![
        Column::new("captured", FieldType::TimestampNs, true),
        Column::new("interface", FieldType::Utf8, true),
        Column {
            labels,
            ..Column::new("protocol", FieldType::U16, true)
        },
        Column::new("src_addr", FieldType::Utf8, true),
        Column::new("dst_addr", FieldType::Utf8, true),
        Column::new("src_port", FieldType::U16, true),
        Column::new("dst_port", FieldType::U16, true),
        Column::new("tcp_flags", FieldType::U8, true),
        Column::new("captured_bytes", FieldType::U32, false),
        Column::new("wire_bytes", FieldType::U32, false),
        Column::new("packet", FieldType::VarBytes, false),
    ]
}

/// What the headers of a packet tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Headers {
    protocol: Option<u16>,
    src_addr: Option<Addr>,
    dst_addr: Option<Addr>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    tcp_flags: Option<u8>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Addr {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// Collects packets into a batch of the columns above.
#[derive(Default)]
pub(crate) struct PacketBuilder {
    packet_bytes_max: usize,
    captured: Int64Builder,
    interface: StringBuilder,
    protocol: UInt16Builder,
    src_addr: StringBuilder,
    dst_addr: StringBuilder,
    src_port: UInt16Builder,
    dst_port: UInt16Builder,
    tcp_flags: UInt8Builder,
    captured_bytes: UInt32Builder,
    wire_bytes: UInt32Builder,
    packet: BinaryBuilder,
}

impl PacketBuilder {
    pub(crate) fn new(packet_bytes_max: usize) -> PacketBuilder {
        PacketBuilder {
            packet_bytes_max,
            ..PacketBuilder::default()
        }
    }

    /// The most bytes of a packet that a record keeps beside its other fields.
    pub(crate) fn packet_bytes_max(payload_bytes_max: usize) -> usize {
        // An own time, null bits, 27 bytes of fixed-width fields, four lengths, two addresses, an interface's name.
        payload_bytes_max.saturating_sub(8 + 1 + 27 + 8 + 2 * 45 + 255)
    }

    pub(crate) fn append(
        &mut self,
        captured_ns: Option<i64>,
        interface: Option<&str>,
        link: LinkType,
        wire_bytes: u32,
        bytes: &[u8],
    ) {
        let headers = dissect(link, bytes);
        self.captured.append_option(captured_ns);
        self.interface
            .append_option(interface.map(|name| cut(name, 255)));
        self.protocol.append_option(headers.protocol);
        append_addr(&mut self.src_addr, headers.src_addr);
        append_addr(&mut self.dst_addr, headers.dst_addr);
        self.src_port.append_option(headers.src_port);
        self.dst_port.append_option(headers.dst_port);
        self.tcp_flags.append_option(headers.tcp_flags);
        self.captured_bytes.append_value(bytes.len() as u32);
        self.wire_bytes.append_value(wire_bytes);
        let kept = bytes.len().min(self.packet_bytes_max);
        self.packet
            .append_value(bytes.get(..kept).unwrap_or_default());
    }

    /// A row in the place of a packet that could not be read.
    pub(crate) fn append_nulls(&mut self) {
        self.captured.append_null();
        self.interface.append_null();
        self.protocol.append_null();
        self.src_addr.append_null();
        self.dst_addr.append_null();
        self.src_port.append_null();
        self.dst_port.append_null();
        self.tcp_flags.append_null();
        self.captured_bytes.append_null();
        self.wire_bytes.append_null();
        self.packet.append_null();
    }

    pub(crate) fn finish(mut self) -> anyhow::Result<RecordBatch> {
        let columns: [(&str, ArrayRef); 11] = [
            ("captured", Arc::new(self.captured.finish())),
            ("interface", Arc::new(self.interface.finish())),
            ("protocol", Arc::new(self.protocol.finish())),
            ("src_addr", Arc::new(self.src_addr.finish())),
            ("dst_addr", Arc::new(self.dst_addr.finish())),
            ("src_port", Arc::new(self.src_port.finish())),
            ("dst_port", Arc::new(self.dst_port.finish())),
            ("tcp_flags", Arc::new(self.tcp_flags.finish())),
            ("captured_bytes", Arc::new(self.captured_bytes.finish())),
            ("wire_bytes", Arc::new(self.wire_bytes.finish())),
            ("packet", Arc::new(self.packet.finish())),
        ];
        Ok(RecordBatch::try_from_iter(columns)?)
    }
}

fn append_addr(builder: &mut StringBuilder, addr: Option<Addr>) {
    // Writing to a builder cannot fail.
    match addr {
        None => return builder.append_null(),
        Some(Addr::V4(addr)) => write!(builder, "{addr}").ok(),
        Some(Addr::V6(addr)) => write!(builder, "{addr}").ok(),
    };
    builder.append_value("");
}

fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes))
        .unwrap_or_default()
}

/// Looks into a packet as far as its bytes go.
fn dissect(link: LinkType, bytes: &[u8]) -> Headers {
    dissect_link(link, bytes).unwrap_or_default()
}

fn dissect_link(link: LinkType, bytes: &[u8]) -> Option<Headers> {
    match link {
        LinkType::Ethernet => ether(be_u16(bytes, 12)?, bytes.get(14..)?),
        LinkType::Ip => ip(bytes),
        LinkType::Sll => ether(be_u16(bytes, 14)?, bytes.get(16..)?),
        LinkType::Sll2 => ether(be_u16(bytes, 0)?, bytes.get(20..)?),
        LinkType::Loopback => {
            let family = *bytes.first_chunk()?;
            // Families are small numbers; those of IPv6 differ among systems.
            match u32::from_le_bytes(family).min(u32::from_be_bytes(family)) {
                2 | 10 | 24 | 28 | 30 => ip(bytes.get(4..)?),
                _ => None,
            }
        }
        LinkType::Unknown => None,
    }
}

/// What follows a link header that tells an EtherType; VLAN tags are looked through.
fn ether(ether_type: u16, bytes: &[u8]) -> Option<Headers> {
    let sliced = LaxSlicedPacket::from_ether_type(EtherType(ether_type), bytes);
    if sliced.net.is_some() {
        return of_net(&sliced);
    }
    let inner = sliced
        .ether_payload()
        .map_or(ether_type, |payload| payload.ether_type.0);
    // Below stand lengths of frames of IEEE 802.3, which tell no protocol.
    let protocol = (inner >= 0x0600 && !matches!(inner, 0x0800 | 0x86dd)).then_some(inner);
    Some(Headers {
        protocol,
        ..Headers::default()
    })
}

fn ip(bytes: &[u8]) -> Option<Headers> {
    of_net(&LaxSlicedPacket::from_ip(bytes).ok()?)
}

fn of_net(sliced: &LaxSlicedPacket<'_>) -> Option<Headers> {
    let mut headers = Headers::default();
    let has_ports = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(packet) => {
            let header = packet.header();
            headers.src_addr = Some(Addr::V4(header.source_addr()));
            headers.dst_addr = Some(Addr::V4(header.destination_addr()));
            header.fragments_offset().value() == 0
        }
        LaxNetSlice::Ipv6(packet) => {
            let header = packet.header();
            headers.src_addr = Some(Addr::V6(header.source_addr()));
            headers.dst_addr = Some(Addr::V6(header.destination_addr()));
            !packet.payload().fragmented
        }
        LaxNetSlice::Arp(arp) => {
            headers.protocol = Some(EtherType::ARP.0);
            let v4 = |bytes: &[u8]| Some(Addr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?)));
            if arp.proto_addr_type() == EtherType::IPV4 {
                headers.src_addr = v4(arp.sender_protocol_addr());
                headers.dst_addr = v4(arp.target_protocol_addr());
            }
            return Some(headers);
        }
    };
    let payload = sliced.ip_payload()?;
    headers.protocol = Some(u16::from(payload.ip_number.0));
    // Ports come first in each of these, so that they are read even where the header is cut.
    if has_ports && matches!(payload.ip_number.0, 6 | 17 | 33 | 132 | 136) {
        headers.src_port = be_u16(payload.payload, 0);
        headers.dst_port = be_u16(payload.payload, 2);
        if payload.ip_number.0 == 6 {
            headers.tcp_flags = payload.payload.get(13).copied();
        }
    }
    Some(headers)
}

fn be_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP4: [u8; 28] = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 53, 0x30, 0x39, 0, 8,
        0, 0,
    ];

    fn udp4() -> Headers {
        Headers {
            protocol: Some(17),
            src_addr: Some(Addr::V4(Ipv4Addr::new(1, 2, 3, 4))),
            dst_addr: Some(Addr::V4(Ipv4Addr::new(5, 6, 7, 8))),
            src_port: Some(53),
            dst_port: Some(12_345),
            tcp_flags: None,
        }
    }

    fn behind(header: &[u8]) -> Vec<u8> {
        [header, &UDP4].concat()
    }

    #[test]
    fn every_link_type_leads_to_the_same_packet() {
        let mut ethernet = [0; 14];
        ethernet[12] = 8;
        let mut tagged = [0; 18];
        tagged[12..14].copy_from_slice(&[0x81, 0x00]);
        tagged[16] = 8;
        let mut sll = [0; 16];
        sll[14] = 8;
        let mut sll2 = [0; 20];
        sll2[0] = 8;
        for (link, bytes) in [
            (1, behind(&ethernet)),
            (1, behind(&tagged)),
            (0, behind(&[2, 0, 0, 0])),
            (108, behind(&[0, 0, 0, 2])),
            (101, behind(&[])),
            (228, behind(&[])),
            (113, behind(&sll)),
            (276, behind(&sll2)),
        ] {
            assert_eq!(
                dissect(LinkType::new(link), &bytes),
                udp4(),
                "link type {link}"
            );
        }
        assert_eq!(dissect(LinkType::new(147), &UDP4), Headers::default());
    }

    #[test]
    fn ipv6_with_an_extension_header() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 28, 0, 64];
        packet.extend(Ipv6Addr::LOCALHOST.octets());
        packet.extend(Ipv6Addr::LOCALHOST.octets());
        packet.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([
            0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x11, 0, 0, 0, 0, 0, 0,
        ]);
        let headers = dissect(LinkType::Ip, &packet);
        assert_eq!(headers.src_addr, Some(Addr::V6(Ipv6Addr::LOCALHOST)));
        assert_eq!((headers.protocol, headers.src_port), (Some(6), Some(80)));
        assert_eq!(
            (headers.dst_port, headers.tcp_flags),
            (Some(256), Some(0x11))
        );
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut packet = UDP4;
        packet[6..8].copy_from_slice(&[0x00, 0x10]);
        let headers = dissect(LinkType::Ip, &packet);
        assert_eq!((headers.protocol, headers.src_port), (Some(17), None));
        packet[6..8].copy_from_slice(&[0x20, 0x00]);
        assert_eq!(dissect(LinkType::Ip, &packet).src_port, Some(53));
    }

    #[test]
    fn a_total_length_of_zero_as_offloading_leaves_it() {
        let mut packet = UDP4;
        packet[2..4].fill(0);
        assert_eq!(dissect(LinkType::Ip, &packet), udp4());
    }

    #[test]
    fn what_is_not_ip_is_told_by_its_ether_type() {
        let mut arp = vec![0; 12];
        arp.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
        arp.extend([1, 1, 1, 1, 1, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        let headers = dissect(LinkType::Ethernet, &arp);
        assert_eq!(headers.protocol, Some(0x0806));
        assert_eq!(headers.dst_addr, Some(Addr::V4(Ipv4Addr::new(10, 0, 0, 2))));
        let mut lldp = vec![0; 12];
        lldp.extend([0x88, 0xcc, 1]);
        assert_eq!(dissect(LinkType::Ethernet, &lldp).protocol, Some(0x88cc));
        let mut frame = vec![0; 12];
        frame.extend([0x00, 0x20, 1]);
        assert_eq!(dissect(LinkType::Ethernet, &frame).protocol, None);
    }
}
