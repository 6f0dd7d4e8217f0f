//! The address that a host listens on, and the claim that nobody else listens there.
//!
//! Quack lets a second server listen on a port without an error, and each then gets a part of the questions. So a port is claimed by a name
//! that the kernel gives to one process, and checked before each start.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};

const LOCALHOST: &str = "localhost";
/// Loopback answers at once, or nobody listens.
const PATIENCE: Duration = Duration::from_secs(2);

/// An address on loopback, and a port that is not 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    host: String,
    port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port != 0)?)));
        let Some((host, port)) = parsed else {
            return Err(format!(
                "'{text}' is not an address with a port; use localhost:9494"
            ));
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_loopback = |ip: IpAddr| ip.is_loopback();
        if host != LOCALHOST && !bare.unwrap_or(host).parse().is_ok_and(is_loopback) {
            return Err(format!(
                "'{host}' is not on loopback, and Quack does not encrypt; listen on localhost:{port} behind a proxy with TLS"
            ));
        }
        Ok(Listen {
            host: host.to_owned(),
            port,
        })
    }
}

impl Listen {
    /// The address in Quack's form.
    pub fn uri(&self) -> String {
        format!("quack:{}:{}", self.host, self.port)
    }
}

/// A port that no other `ingestd serve` can have while this value lives.
pub(super) struct ClaimedPort {
    listen: Listen,
    _name: UnixDatagram,
}

impl ClaimedPort {
    pub(super) fn claim(listen: Listen) -> anyhow::Result<ClaimedPort> {
        let name = SocketAddr::from_abstract_name(format!("loom-serve:{}", listen.port))?;
        match UnixDatagram::bind_addr(&name) {
            Ok(name) => Ok(ClaimedPort {
                listen,
                _name: name,
            }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
                "another 'ingestd serve' has port {}; stop it, or choose another port",
                listen.port
            ),
            Err(error) => Err(error).with_context(|| format!("cannot claim port {}", listen.port)),
        }
    }

    /// Refuses a port on which another program listens.
    pub(super) fn require_free(&self) -> anyhow::Result<()> {
        let Listen { host, port } = &self.listen;
        let bare = host.trim_matches(['[', ']']);
        let addresses = (bare, *port)
            .to_socket_addrs()
            .with_context(|| format!("cannot find the address of '{host}'"))?;
        for address in addresses {
            if TcpStream::connect_timeout(&address, PATIENCE).is_ok() {
                bail!("another program listens on port {port}; stop it, or choose another port");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn free_port() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn addresses_on_loopback_are_taken_and_all_others_refused_with_the_remedy() {
        for (text, uri) in [
            ("localhost:9494", "quack:localhost:9494"),
            ("127.0.0.1:1", "quack:127.0.0.1:1"),
            ("[::1]:65535", "quack:[::1]:65535"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().uri(), uri);
        }
        for text in [
            "0.0.0.0:9494",
            "[::]:9494",
            "192.0.2.1:9494",
            "example.com:9494",
        ] {
            let refusal = text.parse::<Listen>().unwrap_err();
            assert!(
                refusal.contains("listen on localhost:9494 behind a proxy with TLS"),
                "{refusal}"
            );
        }
        for text in [
            "localhost",
            "9494",
            "localhost:0",
            "localhost:65536",
            "localhost:",
        ] {
            let refusal = text.parse::<Listen>().unwrap_err();
            assert!(refusal.contains("use localhost:9494"), "{refusal}");
        }
    }

    #[test]
    fn a_port_is_claimed_once_and_free_again_after() {
        let (_listener, port) = free_port();
        let listen: Listen = format!("localhost:{port}").parse().unwrap();
        let claimed = ClaimedPort::claim(listen.clone()).unwrap();
        let second = ClaimedPort::claim(listen.clone())
            .err()
            .unwrap()
            .to_string();
        assert!(
            second.contains(&format!("another 'ingestd serve' has port {port}")),
            "{second}"
        );
        drop(claimed);
        ClaimedPort::claim(listen).unwrap();
    }

    #[test]
    fn a_port_on_which_a_program_listens_is_refused() {
        let (listener, port) = free_port();
        let claimed = ClaimedPort::claim(format!("localhost:{port}").parse().unwrap()).unwrap();
        let refusal = claimed.require_free().unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("another program listens on port {port}")),
            "{refusal}"
        );
        drop(listener);
        claimed.require_free().unwrap();
    }
}
