//! Sends requests of OTLP in JSON to a receiver over HTTP, again while it is busy, as the protocol says.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::Value as Json;
use ureq::Agent;

use crate::web_client::{agent, plain, token};

const TIMEOUT: Duration = Duration::from_secs(30);
/// The pauses before a request is sent again, unless the receiver asks for other ones.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
const PAUSE_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// So much of an answer stands in a message.
const SAID_CHARS: usize = 300;

/// A receiver of OTLP.
pub(super) struct Endpoint {
    agent: Agent,
    url: String,
    token: Option<String>,
    /// The receiver has answered.
    is_known: bool,
    refused: u64,
    /// The receiver's latest words about records that it did not take.
    reason: String,
}

struct Answer {
    status: u16,
    pause: Option<Duration>,
    body: String,
}

/// A receiver's answer: the records that it did not take, or its status.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reply {
    partial_success: Option<PartialSuccess>,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PartialSuccess {
    rejected_spans: Json,
    rejected_log_records: Json,
    error_message: String,
}

impl Endpoint {
    pub fn of(url: &str, token_file: Option<&Path>) -> anyhow::Result<Endpoint> {
        Ok(Endpoint {
            agent: agent(url, TIMEOUT, None)?,
            url: url.trim_end_matches('/').to_owned(),
            token: token_file
                .map(|path| token(path, "--token-file"))
                .transpose()?,
            is_known: false,
            refused: 0,
            reason: String::new(),
        })
    }

    /// Sends a request to a path of the receiver. One whose answer was lost is sent again, so the receiver may have it twice.
    ///
    /// # Errors
    /// The receiver refuses the request, cannot be reached, or stays busy.
    pub fn send(&mut self, path: &str, request: &str) -> anyhow::Result<()> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let (why, asked) = match self.post(path, request) {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    self.is_known = true;
                    return self.note(&answer.body).with_context(|| {
                        format!(
                            "{path} answered {} with what is not OTLP{}",
                            answer.status,
                            said(&answer.body)
                        )
                    });
                }
                Ok(answer) => {
                    self.is_known = true;
                    let why = anyhow!("{path} answered {}{}", answer.status, said(&answer.body));
                    if ![429, 502, 503, 504].contains(&answer.status) {
                        return Err(why);
                    }
                    (why, answer.pause)
                }
                Err(why) if !self.is_known => return Err(why),
                Err(why) => (why, None),
            };
            let Some(pause) = pauses.next() else {
                bail!("{why}; it was asked {} times", PAUSES.len() + 1);
            };
            sleep(asked.unwrap_or(pause).min(PAUSE_MAX));
        }
    }

    /// Says how many records the receiver did not take; `None` if it took all.
    pub fn refused(&self) -> Option<String> {
        (self.refused > 0).then(|| {
            format!(
                "the receiver refused {} records: {}",
                self.refused, self.reason
            )
        })
    }

    fn post(&self, path: &str, request: &str) -> anyhow::Result<Answer> {
        let mut post = self.agent.post(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            post = post.header("authorization", format!("Bearer {token}"));
        }
        let failed = |error| plain(error, TIMEOUT, "ask it for less at a time");
        let mut reply = post
            .content_type("application/json")
            .send(request)
            .map_err(failed)?;
        let pause = reply.headers().get("retry-after");
        let pause = pause.and_then(|pause| pause.to_str().ok()?.parse().ok());
        let body = reply.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let body = body.lossy_utf8(true).read_to_string().map_err(failed)?;
        Ok(Answer {
            status: reply.status().as_u16(),
            pause: pause.map(Duration::from_secs),
            body,
        })
    }

    /// Notes records that were not taken although the request was.
    fn note(&mut self, body: &str) -> anyhow::Result<()> {
        if body.is_empty() {
            return Ok(());
        }
        let reply: Reply = serde_json::from_str(body)?;
        let partial = reply.partial_success.unwrap_or_default();
        let refused = number(&partial.rejected_spans)? + number(&partial.rejected_log_records)?;
        if refused > 0 {
            self.refused += refused;
            let reason = match &*partial.error_message {
                "" => "without a reason",
                reason => reason,
            };
            self.reason = reason.chars().take(SAID_CHARS).collect();
        }
        Ok(())
    }
}

/// A number of OTLP in JSON, where it may be a text. One that is missing is 0.
fn number(json: &Json) -> anyhow::Result<u64> {
    let number = match json {
        Json::Null => Some(0),
        Json::String(text) => text.parse().ok(),
        json => json.as_u64(),
    };
    number.with_context(|| format!("{json} is not a number of records"))
}

/// The words of an answer: its status message, or its text.
fn said(body: &str) -> String {
    let reply: Option<Reply> = serde_json::from_str(body).ok();
    let words = reply.map(|reply| reply.message);
    match words.as_deref().unwrap_or(body).trim() {
        "" => String::new(),
        words => format!(": {}", words.chars().take(SAID_CHARS).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::thread::{JoinHandle, spawn};

    use super::*;

    /// A receiver that gives these answers, each on a connection of its own. Returns its address, and later the requests.
    fn receiver(answers: &'static [(&str, &str)]) -> (String, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let requests = answers.iter().map(move |(head, body)| {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let mut lines = String::new();
            while !lines.ends_with("\r\n\r\n") {
                reader.read_line(&mut lines).unwrap();
            }
            let lower = lines.to_lowercase();
            let length = lower
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let mut request = vec![0; length.unwrap().parse().unwrap()];
            reader.read_exact(&mut request).unwrap();
            let length = body.len();
            write!(
                &stream,
                "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .unwrap();
            lower + &String::from_utf8(request).unwrap()
        });
        (url, spawn(move || requests.collect()))
    }

    #[test]
    fn a_busy_receiver_is_asked_again_and_what_it_refuses_is_counted() {
        let (url, requests) = receiver(&[
            ("503 Busy\r\nretry-after: 0", ""),
            (
                "200 OK",
                r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#,
            ),
            ("200 OK", r#"{"partialSuccess":{"rejectedLogRecords":3}}"#),
            ("200 OK", r#"{"partialSuccess":null}"#),
            ("200 OK", ""),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret\n").unwrap();
        let mut endpoint = Endpoint::of(&url, Some(&token)).unwrap();
        endpoint.send("/v1/traces", "[1]").unwrap();
        let refused = endpoint.refused();
        assert_eq!(
            refused.as_deref(),
            Some("the receiver refused 2 records: too old")
        );
        endpoint.send("/v1/logs", "[2]").unwrap();
        endpoint.send("/v1/logs", "[3]").unwrap();
        endpoint.send("/v1/logs", "[4]").unwrap();
        let refused = endpoint.refused();
        assert_eq!(
            refused.as_deref(),
            Some("the receiver refused 5 records: without a reason")
        );
        let requests = requests.join().unwrap();
        for (request, (path, body)) in requests.iter().zip([
            ("/v1/traces", "[1]"),
            ("/v1/traces", "[1]"),
            ("/v1/logs", "[2]"),
            ("/v1/logs", "[3]"),
            ("/v1/logs", "[4]"),
        ]) {
            assert!(
                request.starts_with(&format!("post {path} ")) && request.ends_with(body),
                "{request}"
            );
            assert!(
                request.contains("\r\nauthorization: bearer secret\r\n"),
                "{request}"
            );
            assert!(
                request.contains("\r\ncontent-type: application/json\r\n"),
                "{request}"
            );
        }
    }

    #[test]
    fn a_request_that_is_refused_or_reaches_nobody_is_an_error_at_once() {
        let (url, requests) = receiver(&[(
            "401 Unauthorized",
            r#"{"code":16,"message":"give a token"}"#,
        )]);
        let mut endpoint = Endpoint::of(&url, None).unwrap();
        let error = endpoint.send("/v1/logs", "{}").unwrap_err().to_string();
        assert_eq!(error, "/v1/logs answered 401: give a token");
        requests.join().unwrap();
        let mut endpoint = Endpoint::of(&url, None).unwrap();
        let error = endpoint.send("/v1/logs", "{}").unwrap_err().to_string();
        assert!(error.contains("refused the connection"), "{error}");
        for body in [
            "<html>Welcome</html>",
            r#"{"partialSuccess":{"rejectedSpans":"some"}}"#,
        ] {
            let (url, requests) = receiver(vec![("200 OK", body)].leak());
            let mut endpoint = Endpoint::of(&url, None).unwrap();
            let error = endpoint.send("/v1/traces", "{}").unwrap_err().to_string();
            assert!(
                error.starts_with("/v1/traces answered 200 with what is not OTLP"),
                "{error}"
            );
            requests.join().unwrap();
        }
    }
}
