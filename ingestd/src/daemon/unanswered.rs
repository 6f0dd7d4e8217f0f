//! Why a request over HTTP has no answer, in words for people: of targets that are scraped, and of webhooks.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::anyhow;

/// How the TLS library begins to say that a certificate does not hold.
const UNTRUSTED: &str = "invalid peer certificate: ";
/// How the standard library says that a name has no address.
const UNKNOWN_HOST: &str = "failed to lookup address";

/// The usual failures in plain words; others as the library has them. `remedy` is what to do about one that took longer than `timeout`.
pub(super) fn plain(error: ureq::Error, timeout: Duration, remedy: &str) -> anyhow::Error {
    let said = error.to_string();
    if let Some((_, why)) = said.rsplit_once(UNTRUSTED) {
        return anyhow!(
            "its certificate is not trusted ({why}); give tls.ca, the certificates of those whom you trust"
        );
    }
    match error {
        ureq::Error::Timeout(_) => anyhow!("it did not answer within {timeout:?}; {remedy}"),
        ureq::Error::Protocol(why) => anyhow!("its answer is not HTTP: {why}; check the port"),
        ureq::Error::HostNotFound => unknown_host(),
        _ if said.contains(UNKNOWN_HOST) => unknown_host(),
        ureq::Error::Io(why) => match why.kind() {
            ErrorKind::ConnectionRefused => {
                anyhow!("it refused the connection; start it, or check its port")
            }
            ErrorKind::UnexpectedEof => {
                anyhow!("it closed the connection before its answer was whole")
            }
            _ => anyhow!("it cannot be reached: {why}"),
        },
        error => error.into(),
    }
}

fn unknown_host() -> anyhow::Error {
    anyhow!("no host has its name; check the name, or the machine's name server")
}
