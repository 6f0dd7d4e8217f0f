//! The receiver's certificate, and the senders that it accepts over TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The authority that signs the certificates of senders; without it, senders need none.
    pub ca: Option<PathBuf>,
}

/// TLS cannot use these files.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} for TLS: {why}", path.display())]
pub struct TlsError {
    path: PathBuf,
    why: String,
}

impl TlsError {
    fn of(path: &Path, why: impl ToString) -> TlsError {
        TlsError {
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}

impl Tls {
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| TlsError::of(&self.key, error))?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the cipher suites of its own protocol versions");
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(ca)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| TlsError::of(ca, error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder
                    .with_client_cert_verifier(verifier.map_err(|error| TlsError::of(ca, error))?)
            }
        };
        let config = builder.with_single_cert(certificates(&self.cert)?, key);
        let mut config = config.map_err(|error| TlsError::of(&self.cert, error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| TlsError::of(path, error))?;
    match found.is_empty() {
        true => Err(TlsError::of(path, "it has no certificate in PEM")),
        false => Ok(found),
    }
}
