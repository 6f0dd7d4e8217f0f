//! Reads the headers of captured packets: addresses, ports and protocol, as far as the captured bytes go.
//!
//! Fields that are missing or of another protocol are `None`.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{EtherType, LaxIpv6Slice, LaxNetSlice, LaxSlicedPacket};

/// The first header of a packet, by the link types of tcpdump.org.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LinkType {
    Ethernet,
    /// An address family of 4 bytes, in the byte order of the capturing host.
    Loopback,
    Ip,
    /// Linux "cooked": 16 bytes, the protocol in the last two.
    Sll,
    /// Linux "cooked", second version: 20 bytes, the protocol in the first two.
    Sll2,
    Unknown,
}

impl LinkType {
    pub fn new(number: u32) -> LinkType {
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

/// The headers of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    pub protocol: Option<u16>,
    pub src_addr: Option<Addr>,
    pub dst_addr: Option<Addr>,
    pub src_port: Option<u16>,
    pub dst_port: Option<u16>,
    pub tcp_flags: Option<u8>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Addr {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// Reads the headers as far as the bytes go.
pub fn dissect(link: LinkType, bytes: &[u8]) -> Headers {
    dissect_link(link, bytes).unwrap_or_default()
}

/// The number of the packet's interface on the capturing host, if the link header has one.
pub fn interface_number(link: LinkType, bytes: &[u8]) -> Option<u32> {
    let number = bytes.get(4..)?.first_chunk()?;
    (link == LinkType::Sll2).then(|| u32::from_be_bytes(*number))
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

/// Reads the headers after an EtherType. VLAN tags are skipped here, because etherparse stops at the fourth.
fn ether(mut ether_type: u16, mut bytes: &[u8]) -> Option<Headers> {
    while let 0x8100 | 0x88a8 | 0x9100 = ether_type
        && let (Some(inner), Some(rest)) = (be_u16(bytes, 2), bytes.get(4..))
    {
        (ether_type, bytes) = (inner, rest);
    }
    let sliced = LaxSlicedPacket::from_ether_type(EtherType(ether_type), bytes);
    if sliced.net.is_some() {
        return of_net(&sliced);
    }
    let inner = sliced
        .ether_payload()
        .map_or(ether_type, |payload| payload.ether_type.0);
    // Smaller numbers are lengths of IEEE 802.3 frames, not protocols.
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
            is_first(packet)
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
    // These headers begin with the ports, which can be read even if the header is truncated.
    if has_ports && matches!(payload.ip_number.0, 6 | 17 | 33 | 132 | 136) {
        headers.src_port = be_u16(payload.payload, 0);
        headers.dst_port = be_u16(payload.payload, 2);
        if payload.ip_number.0 == 6 {
            headers.tcp_flags = payload.payload.get(13).copied();
        }
    }
    Some(headers)
}

/// Whether a packet is whole or a first fragment, so that it has ports.
fn is_first(packet: &LaxIpv6Slice<'_>) -> bool {
    let next = packet.header().next_header().0;
    !packet.payload().fragmented || fragment_offset(next, packet.extensions().slice()) == Some(0)
}

/// The offset of a fragment by the extension headers of IPv6; `next` is the type of the first. The iterator of etherparse reads past the end of
/// truncated headers.
fn fragment_offset(mut next: u8, mut headers: &[u8]) -> Option<u16> {
    loop {
        let bytes = match next {
            // Hop-by-hop options, routing, destination options, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => 8 + 8 * usize::from(*headers.get(1)?),
            // Authentication.
            51 => 8 + 4 * usize::from(*headers.get(1)?),
            44 => return be_u16(headers, 2).map(|offset| offset >> 3),
            _ => return None,
        };
        next = *headers.first()?;
        headers = headers.get(bytes..)?;
    }
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
        let mut four_tags = [0; 30];
        for (tag, ether_type) in [0x88a8_u16, 0x8100, 0x9100, 0x8100, 0x0800]
            .into_iter()
            .enumerate()
        {
            four_tags[12 + 4 * tag..][..2].copy_from_slice(&ether_type.to_be_bytes());
        }
        let mut sll = [0; 16];
        sll[14] = 8;
        let mut sll2 = [0; 20];
        sll2[0] = 8;
        for (link, bytes) in [
            (1, behind(&ethernet)),
            (1, behind(&tagged)),
            (1, behind(&four_tags)),
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
    fn only_the_second_cooked_header_numbers_interfaces() {
        let bytes = [8, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(interface_number(LinkType::Sll2, &bytes), Some(258));
        assert_eq!(interface_number(LinkType::Sll2, &bytes[..7]), None);
        assert_eq!(interface_number(LinkType::Sll, &bytes), None);
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
    fn the_first_fragment_of_ipv6_has_ports_and_later_ones_have_none() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, 44, 64];
        packet.extend([Ipv6Addr::LOCALHOST.octets(); 2].concat());
        packet.extend([17, 0, 0, 1, 0, 0, 0, 9]);
        packet.extend([0, 53, 0x30, 0x39, 0, 200, 0, 0]);
        let headers = dissect(LinkType::Ip, &packet);
        assert_eq!((headers.protocol, headers.src_port), (Some(17), Some(53)));
        // The same holds after options of either kind.
        let mut behind = packet.clone();
        (behind[5], behind[6]) = (32, 0);
        behind.splice(40..40, [60, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0]);
        let headers = dissect(LinkType::Ip, &behind);
        assert_eq!((headers.protocol, headers.src_port), (Some(17), Some(53)));
        packet[42..44].copy_from_slice(&[0x00, 0x10]);
        let headers = dissect(LinkType::Ip, &packet);
        assert_eq!((headers.protocol, headers.src_port), (Some(17), None));
    }

    #[test]
    fn extension_headers_that_are_cut_or_claim_too_much_are_read_as_far_as_they_go() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 40, 0, 64];
        packet.extend([Ipv6Addr::LOCALHOST.octets(); 2].concat());
        packet.extend([44, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([60, 0, 0, 1, 0, 0, 0, 9]);
        packet.extend([51, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([17, 2, 0, 0, 0, 0, 0, 0, 0, 53, 0x30, 0x39, 0, 200, 0, 0]);
        for at in 40..packet.len() {
            for byte in [0, 1, 2, 6, 44, 51, 60, 255] {
                let mut changed = packet.clone();
                changed[at] = byte;
                for end in 40..=changed.len() {
                    let headers = dissect(LinkType::Ip, &changed[..end]);
                    assert_eq!(headers.src_addr, Some(Addr::V6(Ipv6Addr::LOCALHOST)));
                }
            }
        }
    }

    #[test]
    fn a_total_length_of_zero_as_offloading_leaves_it() {
        let mut packet = UDP4;
        packet[2..4].fill(0);
        assert_eq!(dissect(LinkType::Ip, &packet), udp4());
    }

    #[test]
    fn other_protocols_than_ip_are_named_by_their_ether_type() {
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
