//! Limits what the senders at one address add to the catalog within a day, so that one address cannot use up the room of all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::config::OtlpDef;

const DAY: Duration = Duration::from_secs(86_400);
/// The most new senders at one address within a day: each gets a source that stays.
pub(super) const NEW_MAX: usize = 1000;
/// The most addresses that may add something within a day.
const ADDRESSES_MAX: usize = 65_536;

/// The additions of each address today.
pub(crate) struct Shares {
    day: Instant,
    added: HashMap<IpAddr, Added>,
    /// The most that one address may add to the catalog file.
    catalog_bytes_max: u64,
}

#[derive(Default)]
struct Added {
    senders: usize,
    catalog_bytes: u64,
}

impl Shares {
    pub(crate) fn new(def: &OtlpDef) -> Shares {
        Shares::within(def.catalog_bytes_max / 2)
    }

    fn within(catalog_bytes_max: u64) -> Shares {
        Shares {
            day: Instant::now(),
            added: HashMap::new(),
            catalog_bytes_max,
        }
    }

    /// Counts a new sender, or says why it is refused.
    pub(super) fn add_sender(&mut self, from: IpAddr) -> Result<(), &'static str> {
        let Some(added) = self.of(from) else {
            return Err("senders at too many addresses are new within a day");
        };
        if added.senders >= NEW_MAX {
            return Err("more than 1000 senders at one address are new within a day");
        }
        added.senders += 1;
        Ok(())
    }

    pub(super) fn catalog_bytes_left(&mut self, from: IpAddr) -> u64 {
        let most = self.catalog_bytes_max;
        self.of(from)
            .map_or(0, |added| most.saturating_sub(added.catalog_bytes))
    }

    pub(super) fn add_catalog_bytes(&mut self, from: IpAddr, bytes: u64) {
        if let Some(added) = self.of(from) {
            added.catalog_bytes += bytes;
        }
    }

    fn of(&mut self, from: IpAddr) -> Option<&mut Added> {
        if self.day.elapsed() >= DAY {
            self.day = Instant::now();
            self.added.clear();
        }
        let at = network(from);
        let has_room = self.added.len() < ADDRESSES_MAX || self.added.contains_key(&at);
        has_room.then(|| self.added.entry(at).or_default())
    }
}

/// Returns one address for all that a host may choose from: its network of 64 bits in IPv6, and all of loopback.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_uses_up_its_own_share_alone() {
        let mut shares = Shares::within(100);
        let [one, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        for _ in 0..NEW_MAX {
            shares.add_sender(one).unwrap();
        }
        assert!(shares.add_sender(one).unwrap_err().contains("1000 senders"));
        assert!(shares.add_sender(other).is_ok());
        shares.add_catalog_bytes(one, 70);
        assert_eq!(shares.catalog_bytes_left(one), 30);
        shares.add_catalog_bytes(one, 70);
        assert_eq!(shares.catalog_bytes_left(one), 0);
        assert_eq!(shares.catalog_bytes_left(other), 100);
    }

    #[test]
    fn addresses_that_one_host_chooses_from_share() {
        for (one, other, share) in [
            ("127.0.0.1", "127.9.9.9", true),
            ("127.0.0.1", "::1", true),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            let [a, b] = [one, other].map(|address| network(address.parse().unwrap()));
            assert_eq!(a == b, share, "{one} {other}");
        }
    }
}
