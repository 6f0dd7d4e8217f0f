//! The files that `[otlp]` names: a token, and certificates with their keys.

use std::path::Path;

use loom_otlp::{Options, Tls};

use crate::config::{OtlpDef, TlsDef};
use crate::daemon::DaemonError;

/// Refuses files of a configuration that cannot be used.
pub(in crate::daemon) fn check(def: &OtlpDef) -> Result<(), DaemonError> {
    options(def).map(drop)
}

pub(super) fn options(def: &OtlpDef) -> Result<Options, DaemonError> {
    let tls = def.tls.as_ref().and_then(tls);
    let token = def.bearer_file.as_deref().map(token).transpose()?;
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

fn token(path: &Path) -> Result<String, DaemonError> {
    let shown = path.display();
    let read = std::fs::read_to_string(path).map_err(|error| {
        DaemonError::Otlp(format!("cannot read [otlp] bearer_file {shown}: {error}"))
    })?;
    let token = read.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(DaemonError::Otlp(format!(
            "[otlp] bearer_file {shown} holds no token"
        ))),
    }
}
