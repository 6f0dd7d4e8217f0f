//! Fetches one answer of a target over HTTP or HTTPS, within the time and the bytes that its job allows.

use std::fs;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ureq::Agent;

use crate::config::{BasicAuthDef, ScrapeDef};
use crate::exposition::Format;
use crate::web_client::{plain, tls, token};

/// Both formats, the one with the more exact numbers first.
const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

const REMEDY: &str = "raise timeout and every, or let it answer less";

pub(super) struct Answer {
    pub(super) format: Format,
    pub(super) body: Vec<u8>,
}

/// An answer that was not read to its end.
#[derive(Debug, thiserror::Error)]
#[error("its answer is longer than {0} bytes; raise body_max, or let it answer less")]
pub(super) struct TooLong(u64);

/// Checks the files that a job names.
///
/// # Errors
/// A sentence that names the file.
pub(super) fn usable(job: &ScrapeDef) -> anyhow::Result<()> {
    if let Some(path) = &job.bearer_file {
        token(path, "bearer_file")?;
    }
    if let Some(def) = &job.basic_auth {
        credentials(def)?;
    }
    if let Some(def) = &job.tls {
        tls(def)?;
    }
    Ok(())
}

/// Fetches the answer of one target.
///
/// # Errors
/// A sentence; the token is never a part of it.
pub(super) fn fetch(agent: &Agent, job: &ScrapeDef, url: &str) -> anyhow::Result<Answer> {
    let timeout = job.timeout.as_secs_f64().to_string();
    let mut request = agent
        .get(url)
        .header("accept", ACCEPT)
        .header("x-prometheus-scrape-timeout-seconds", timeout);
    if let Some(path) = &job.bearer_file {
        let token = token(path, "bearer_file")?;
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if let Some(def) = &job.basic_auth {
        request = request.header("authorization", format!("Basic {}", credentials(def)?));
    }
    let mut reply = request
        .call()
        .map_err(|error| plain(error, job.timeout, REMEDY))?;
    let status = reply.status();
    if status != 200 {
        bail!("it answered {status}");
    }
    if let Some(encoding) = reply.headers().get("content-encoding")
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        bail!(
            "its answer is compressed ({encoding}), which was not asked for; let it answer without"
        );
    }
    let kind = reply.headers().get("content-type");
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let format = Format::of_content_type(kind.unwrap_or_default());
    let is_of_known_length = ["content-length", "transfer-encoding"]
        .iter()
        .any(|name| reply.headers().contains_key(*name));
    let body = reply.body_mut().with_config().limit(job.body_bytes_max);
    let mut body = body.read_to_vec().map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(most) => anyhow::Error::new(TooLong(most)),
        error => plain(error, job.timeout, REMEDY),
    })?;
    // The body is complete, so its last line is too. OpenMetrics has a mark of its own.
    if is_of_known_length && format == Format::Text && !body.ends_with(b"\n") {
        body.push(b'\n');
    }
    Ok(Answer { format, body })
}

/// Name and password for the header.
fn credentials(def: &BasicAuthDef) -> anyhow::Result<String> {
    let path = &def.password_file;
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read password_file {}", path.display()))?;
    let password = text.trim_end_matches(['\n', '\r']);
    if password.contains(char::is_control) {
        bail!(
            "password_file {} holds more than a password",
            path.display()
        );
    }
    Ok(STANDARD.encode(format!("{}:{password}", def.username)))
}
