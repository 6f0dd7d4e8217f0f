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
        return untrusted(why);
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

/// Of the reasons only an unknown issuer is a matter of whom the daemon trusts.
fn untrusted(why: &str) -> anyhow::Error {
    let remedy = match why {
        "UnknownIssuer" => "give tls.ca, the certificates of those whom you trust",
        // `openssl req -x509` makes such ones unless told otherwise.
        _ if why.contains("CaUsedAsEndEntity") => {
            "it is an authority's: make one with basicConstraints=CA:FALSE, and give it as tls.ca"
        }
        _ => "renew it, or use a name that it has",
    };
    anyhow!("its certificate is not trusted ({why}); {remedy}")
}

fn unknown_host() -> anyhow::Error {
    anyhow!("no host has its name; check the name, or the machine's name server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_certificate_depends_on_why_it_is_not_trusted() {
        for (why, remedy) in [
            ("UnknownIssuer", "give tls.ca"),
            (
                "Other(OtherError(CaUsedAsEndEntity))",
                "basicConstraints=CA:FALSE",
            ),
            (
                "certificate not valid for name \"web-1\"; certificate is only valid for DnsName(\"web-2\")",
                "use a name that it has",
            ),
        ] {
            let error = std::io::Error::other(format!("{UNTRUSTED}{why}"));
            let said = plain(ureq::Error::Io(error), Duration::ZERO, "").to_string();
            assert!(said.contains("not trusted"), "{said}");
            assert!(said.contains(why) && said.contains(remedy), "{said}");
        }
    }
}
