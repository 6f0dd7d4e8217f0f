//! Captures of either format and byte order, with packets of each link type.

use super::{Seeds, seed};

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![("capture", captures())]
}

/// A UDP packet of IPv4 without data.
const UDP: [u8; 28] = [
    0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 53, 0x30, 0x39, 0, 8, 0, 0,
];

/// How a capture writes its numbers.
#[derive(Copy, Clone)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn words(self, words: &[u32]) -> Vec<u8> {
        let bytes = words.iter().flat_map(|word| match self {
            Order::Little => word.to_le_bytes(),
            Order::Big => word.to_be_bytes(),
        });
        bytes.collect()
    }

    fn halves(self, halves: &[u16]) -> Vec<u8> {
        let bytes = halves.iter().flat_map(|half| match self {
            Order::Little => half.to_le_bytes(),
            Order::Big => half.to_be_bytes(),
        });
        bytes.collect()
    }

    fn classic(self, magic: u32, link: u32, packet: &[u8]) -> Vec<u8> {
        let header = self.words(&[magic, 0x0004_0002, 0, 0, 65_535, link]);
        let more: &[u32] = if magic == KUZNETSOV { &[0, 0] } else { &[] };
        let length = packet.len() as u32;
        let of_packet = [&[7, 9, length, length], more].concat();
        [&header, &self.words(&of_packet), packet].concat()
    }

    /// A block of a pcapng, its body zero padded.
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let bytes = body.len() as u32 + 12;
        [
            &self.words(&[kind, bytes]),
            &body,
            &self.words(&[bytes])[..],
        ]
        .concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [
            self.words(&[0x1A2B_3C4D]),
            self.halves(&[1, 0]),
            vec![0xFF; 8],
        ];
        self.block(SECTION, &body.concat())
    }

    /// An interface with a name, a resolution and an offset.
    fn interface(self, link: u16, resolution: u8) -> Vec<u8> {
        self.named(b"eth0", link, resolution)
    }

    /// The name is of a multiple of four bytes.
    fn named(self, name: &[u8], link: u16, resolution: u8) -> Vec<u8> {
        let body = [
            self.halves(&[link, 0]),
            self.words(&[0]),
            self.halves(&[2, name.len() as u16]),
            name.to_vec(),
            self.halves(&[9, 1]),
            vec![resolution, 0, 0, 0],
            self.halves(&[14, 8]),
            vec![1; 8],
            self.halves(&[0, 0]),
        ];
        self.block(1, &body.concat())
    }

    fn enhanced(self, packet: &[u8]) -> Vec<u8> {
        let length = packet.len() as u32;
        let body = [&self.words(&[0, 0, 1 << 20, length, length]), packet].concat();
        self.block(6, &body)
    }
}

const MICROSECONDS: u32 = 0xA1B2_C3D4;
const NANOSECONDS: u32 = 0xA1B2_3C4D;
const KUZNETSOV: u32 = 0xA1B2_CD34;
const SECTION: u32 = 0x0A0D_0D0A;
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;

fn captures() -> Seeds {
    use Order::{Big, Little};
    let behind = |header: &[u8]| [header, &UDP].concat();
    let ethernet = behind(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    let tagged = behind(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 5, 8, 0]);
    let ng = |order: Order, blocks: &[Vec<u8>]| [order.section(), blocks.concat()].concat();
    let simple = [Little.words(&[28]), UDP.to_vec()].concat();
    let other_end = [Little.words(&[77, 16, 0]), vec![9, 0, 0, 0]].concat();
    let mut classic = vec![
        ("sound", Little.classic(MICROSECONDS, ETHERNET, &ethernet)),
        ("sound_big", Big.classic(NANOSECONDS, RAW_IP, &UDP)),
        (
            "sound_patched",
            Little.classic(KUZNETSOV, ETHERNET, &tagged),
        ),
        (
            "cooked",
            Little.classic(
                MICROSECONDS,
                113,
                &behind(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
            ),
        ),
        (
            "loopback",
            Little.classic(MICROSECONDS, 0, &behind(&[2, 0, 0, 0])),
        ),
        (
            "far",
            [
                Little.classic(MICROSECONDS, 1, &[]),
                Little.words(&[1, 1, 1 << 30, 1]),
            ]
            .concat(),
        ),
        ("half", Little.classic(MICROSECONDS, 1, &ethernet)),
    ];
    if let Some((_, half)) = classic.last_mut() {
        half.truncate(60);
    }
    let blocks = [
        (
            "ng",
            ng(
                Little,
                &[Little.interface(1, 6), Little.enhanced(&ethernet)],
            ),
        ),
        (
            "ng_big",
            ng(Big, &[Big.interface(101, 0x8A), Big.enhanced(&UDP)]),
        ),
        (
            "ng_simple",
            ng(
                Little,
                &[Little.interface(101, 9), Little.block(3, &simple)],
            ),
        ),
        (
            "ng_obsolete",
            ng(
                Little,
                &[
                    Little.interface(101, 0),
                    Little.block(2, &[&[0; 12][..], &Little.words(&[28, 28]), &UDP].concat()),
                ],
            ),
        ),
        (
            "ng_long_name",
            ng(
                Little,
                &[
                    Little.named(&"é".repeat(600).into_bytes(), 101, 6),
                    Little.enhanced(&UDP),
                ],
            ),
        ),
        ("ng_short", ng(Little, &[Little.block(6, &[0; 8])])),
        ("ng_far", ng(Little, &[Little.words(&[6, 13])])),
        ("ng_lengths", ng(Little, &[other_end])),
        ("ng_order", Little.block(SECTION, &[0; 16])),
        (
            "ng_two",
            ng(
                Little,
                &[Little.interface(1, 6), Big.section(), Big.enhanced(&UDP)],
            ),
        ),
    ];
    classic
        .into_iter()
        .chain(blocks)
        .map(|(name, bytes)| seed(name, &[&bytes]))
        .chain([seed("neither", &[b"GET / HTTP/1.1"])])
        .collect()
}
