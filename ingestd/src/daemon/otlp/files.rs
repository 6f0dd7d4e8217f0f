//! Reads the files that `[otlp]` names: a token, and certificates with their keys.

use loom_otlp::{Options, Tls};

use crate::config::{OtlpDef, TlsDef};
use crate::daemon::DaemonError;
use crate::web_client::token;

/// Refuses files of a configuration that cannot be used.
pub(in crate::daemon) fn check(def: &OtlpDef) -> Result<(), DaemonError> {
    options(def).map(drop)
}

pub(super) fn options(def: &OtlpDef) -> Result<Options, DaemonError> {
    let tls = def.tls.as_ref().and_then(tls);
    let file = def.bearer_file.as_deref();
    let token = file.map(|path| token(path, "[otlp] bearer_file"));
    let token = token.transpose();
    let token = token.map_err(|error| DaemonError::Otlp(format!("{error:#}")))?;
    Options::new(def.body_bytes_max, tls.as_ref(), token)
        .map_err(|error| DaemonError::Otlp(format!("[otlp] {error}")))
}

fn tls(def: &TlsDef) -> Option<Tls> {
    Some(Tls {
        cert: def.cert.clone()?,
        key: def.key.clone()?,
        ca: def.ca.clone(),
    })
}
