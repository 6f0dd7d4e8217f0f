//! Turns captured packets into rows with addresses, ports and the captured bytes.
//!
//! Unknown values (of a truncated packet, another protocol, an unknown link type) are NULL. Every packet is kept, truncated to the length of a
//! record.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Int64Builder, RecordBatch, StringBuilder, UInt8Builder, UInt16Builder,
    UInt32Builder,
};
use loom_engine::schema::FieldType;
use loom_probes::capture::framing::{INTERFACE_BYTES_MAX, Packet};
use loom_probes::capture::headers::{Addr, dissect};

use super::columns::Column;

/// IP protocols by number, and EtherTypes (from 1536 on) for other packets.
const PROTOCOLS: [(u16, &str); 27] = [
    (1, "ICMP"),
    (2, "IGMP"),
    (4, "IPv4"),
    (6, "TCP"),
    (17, "UDP"),
    (33, "DCCP"),
    (41, "IPv6"),
    (46, "RSVP"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPv6"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (103, "PIM"),
    (112, "VRRP"),
    (115, "L2TP"),
    (132, "SCTP"),
    (136, "UDPLite"),
    (0x0806, "ARP"),
    (0x8847, "MPLS"),
    (0x8863, "PPPoE discovery"),
    (0x8864, "PPPoE"),
    (0x888e, "EAPOL"),
    (0x88cc, "LLDP"),
    (0x88e5, "MACsec"),
    (0x88f7, "PTP"),
];

/// The column of captured bytes, truncated to the length of a record.
pub(crate) const PACKET: &str = "packet";

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
        Column::new(PACKET, FieldType::VarBytes, false),
    ]
}

/// Collects packets into a batch of the columns above.
#[derive(Default)]
pub(crate) struct PacketBuilder {
    packet_bytes_max: usize,
    /// The number of packets that were truncated.
    pub cut: u64,
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

    /// The longest packet that fits a record beside the other fields.
    pub(crate) fn packet_bytes_max(payload_bytes_max: usize) -> usize {
        // This subtracts an own time, null bits, 27 bytes of fixed-width fields, four lengths, two addresses and an interface's name.
        payload_bytes_max.saturating_sub(8 + 1 + 27 + 8 + 2 * 45 + INTERFACE_BYTES_MAX)
    }

    pub(crate) fn append(&mut self, packet: &Packet<'_>, interface: Option<&str>) {
        let bytes = packet.bytes;
        let headers = dissect(packet.link, bytes);
        self.captured.append_option(packet.captured_ns);
        self.interface.append_option(interface);
        self.protocol.append_option(headers.protocol);
        append_addr(&mut self.src_addr, headers.src_addr);
        append_addr(&mut self.dst_addr, headers.dst_addr);
        self.src_port.append_option(headers.src_port);
        self.dst_port.append_option(headers.dst_port);
        self.tcp_flags.append_option(headers.tcp_flags);
        self.captured_bytes.append_value(bytes.len() as u32);
        self.wire_bytes.append_value(packet.wire_bytes);
        let kept = bytes.len().min(self.packet_bytes_max);
        self.cut += u64::from(kept < bytes.len());
        self.packet
            .append_value(bytes.get(..kept).unwrap_or_default());
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
            (PACKET, Arc::new(self.packet.finish())),
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
