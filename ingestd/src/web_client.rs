//! The common part of our clients over HTTP, those of scrapes and of webhooks: their trust over TLS, and plain words for a request
//! without an answer.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::config::TlsDef;

const USER_AGENT: &str = concat!("loom/", env!("CARGO_PKG_VERSION"));
/// Lists of trusted authorities: Debian, Fedora, SUSE, Alpine.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The TLS library begins its message of a bad certificate so.
const UNTRUSTED: &str = "invalid peer certificate: ";
/// The standard library's message for a name without an address.
const UNKNOWN_HOST: &str = "failed to lookup address";

/// A client for an address. It keeps connections open.
pub(crate) fn agent(url: &str, timeout: Duration, def: Option<&TlsDef>) -> anyhow::Result<Agent> {
    let tls = match url.starts_with("https:") {
        true => tls(def.unwrap_or(&TlsDef::default()))?,
        false => TlsConfig::default(),
    };
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        // A token never goes to another address.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(USER_AGENT)
        .tls_config(tls)
        .build();
    Ok(config.into())
}

/// The bearer token in the file that the `key` of a configuration names.
pub(crate) fn token(path: &Path, key: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {key} {shown}"))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("{key} {shown} holds no token");
    }
    Ok(token.to_owned())
}

/// Puts the usual failures into plain words; others keep the library's. `remedy` is for an answer that took longer than `timeout`.
pub(crate) fn plain(error: ureq::Error, timeout: Duration, remedy: &str) -> anyhow::Error {
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

/// Only an unknown issuer is a matter of trust.
fn untrusted(why: &str) -> anyhow::Error {
    let remedy = match why {
        "UnknownIssuer" => "give tls.ca, the certificates of those whom you trust",
        // `openssl req -x509` makes such certificates by default.
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

/// The authorities that a client over TLS trusts, and its own certificate.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn tls(def: &TlsDef) -> anyhow::Result<TlsConfig> {
    let known = || {
        let mut known = AUTHORITIES.iter().map(Path::new);
        known.find(|path| path.exists())
    };
    let authorities = def.ca.as_deref().or_else(known);
    let authorities =
        authorities.context("this machine has no list of authorities; give tls.ca")?;
    let roots = RootCerts::new_with_certs(&certificates(authorities)?);
    let own = match (&def.cert, &def.key) {
        (Some(cert), Some(key)) => {
            let pem = read(key)?;
            let key = PrivateKey::from_pem(&pem)
                .with_context(|| format!("{} holds no private key in PEM", key.display()))?;
            Some(ClientCert::new_with_certs(&certificates(cert)?, key))
        }
        _ => None,
    };
    Ok(TlsConfig::builder()
        .root_certs(roots)
        .client_cert(own)
        .build())
}

fn certificates(path: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let pem = read(path)?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let Ok(PemItem::Certificate(certificate)) = item {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        bail!("{} holds no certificate in PEM", path.display());
    }
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
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
