//! Finds the interface names of packets whose capture does not name them. `ingestd record` knows the names while it captures.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use loom_probes::capture::framing::Packet;
use loom_probes::capture::headers::interface_number;
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketType, socket};

/// How to find an interface that the capture does not name.
#[derive(Clone, Debug, Default)]
pub enum Interfaces {
    #[default]
    Unknown,
    /// Only this interface is captured.
    One(Arc<str>),
    /// The packet has a number, for which this host has a name.
    OfHost,
}

/// The known names.
#[derive(Default)]
pub(super) struct Names {
    by: Interfaces,
    of_host: HashMap<u32, Option<String>>,
}

impl Names {
    pub(super) fn new(by: Interfaces) -> Names {
        Names {
            by,
            of_host: HashMap::new(),
        }
    }

    pub(super) fn of<'a>(&'a mut self, packet: &Packet<'a>) -> Option<&'a str> {
        match (packet.interface, &self.by) {
            (Some(name), _) => Some(name),
            (None, Interfaces::Unknown) => None,
            (None, Interfaces::One(name)) => Some(name),
            (None, Interfaces::OfHost) => {
                let number = interface_number(packet.link, packet.bytes)?;
                match self.of_host.entry(number) {
                    Entry::Occupied(known) => known.into_mut().as_deref(),
                    Entry::Vacant(new) => new.insert(name_now(number)).as_deref(),
                }
            }
        }
    }

    /// Looks the names up again, because an interface may have been renamed. A removed interface keeps its last name.
    pub(super) fn renew(&mut self) {
        for (number, name) in &mut self.of_host {
            *name = name_now(*number).or(name.take());
        }
    }
}

fn name_now(number: u32) -> Option<String> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    index_to_name(any, number).ok()
}

#[cfg(test)]
mod tests {
    use loom_probes::capture::headers::LinkType;

    use super::*;

    #[test]
    fn a_name_is_that_of_the_capture_or_of_the_host_or_the_only_one() {
        // Linux numbers loopback 1 in every network namespace.
        let cooked = [8, 0, 0, 0, 0, 0, 0, 1];
        let unnamed = |link, bytes| Packet {
            captured_ns: None,
            interface: None,
            link,
            wire_bytes: 8,
            bytes,
        };
        let cooked = unnamed(LinkType::Sll2, &cooked);
        let named = Packet {
            interface: Some("en0"),
            ..unnamed(LinkType::Ethernet, &[])
        };
        let mut unknown = Names::default();
        assert_eq!(unknown.of(&cooked), None);
        let mut one = Names::new(Interfaces::One("eth7".into()));
        assert_eq!(one.of(&cooked), Some("eth7"));
        let mut host = Names::new(Interfaces::OfHost);
        for _ in 0..2 {
            assert_eq!(host.of(&cooked), Some("lo"));
            assert_eq!(host.of(&unnamed(LinkType::Ethernet, &[])), None);
            host.renew();
        }
        let gone = [8, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff];
        assert_eq!(host.of(&unnamed(LinkType::Sll2, &gone)), None);
        for names in [&mut unknown, &mut one, &mut host] {
            assert_eq!(names.of(&named), Some("en0"));
        }
    }
}
