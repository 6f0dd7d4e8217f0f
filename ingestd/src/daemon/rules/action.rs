//! The action of a rule when it fires or resolves: it runs a program, or posts to a webhook. Either ends within a time limit.
//!
//! A program gets no shell and no input, leads a process group of its own, and its group is killed when it ends or time is up. Its output is
//! read to the end, and the first bytes are kept.

use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loom_engine::proven;
use loom_engine::schema::nearest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde::Serialize;
use ureq::Agent;

use crate::child::Program;
use crate::config::{Action, RuleDef, Webhook};
use crate::rfc3339;
use crate::rules::records::{Alert, AlertState};
use crate::web_client::{self, plain};

const RUN_MAX: Duration = Duration::from_secs(10);
const WEBHOOK_MAX: Duration = Duration::from_secs(5);
/// The part of a program's output that is kept.
const OUTPUT_BYTES_MAX: usize = 1024;
/// The interval between looks at a program.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// The pause between two reads of output, so that a program that writes without end costs little.
const BREATH: Duration = Duration::from_millis(1);

/// [`Notice::filled`] replaces these.
const PLACEHOLDERS: [&str; 11] = [
    "rule",
    "state",
    "source",
    "index",
    "when",
    "value",
    "threshold",
    "from",
    "to",
    "position",
    "dir",
];

/// The alert as an action gets it; a webhook gets this as JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Notice {
    rule: String,
    state: &'static str,
    source: String,
    index: String,
    when: String,
    value: Option<f64>,
    threshold: Option<f64>,
    from: String,
    to: String,
    position: u64,
    dir: String,
}

impl Notice {
    pub(super) fn new(def: &RuleDef, alert: &Alert, dir: &Path) -> Notice {
        Notice {
            rule: def.name.clone(),
            state: match alert.state {
                AlertState::Resolved => "resolved",
                _ => "firing",
            },
            source: def.source.clone(),
            index: def.index.clone(),
            when: def.when.to_string(),
            value: alert.value,
            threshold: alert.threshold,
            from: rfc3339(alert.window.first),
            to: rfc3339(alert.window.end()),
            position: alert.position,
            dir: dir.display().to_string(),
        }
    }

    /// Replaces each `{name}` of a word by its value.
    fn filled(&self, word: &str) -> String {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let mut filled = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let value = after.split_once('}').and_then(|(name, after)| {
                let value = match name {
                    "rule" => self.rule.clone(),
                    "state" => self.state.to_owned(),
                    "source" => self.source.clone(),
                    "index" => self.index.clone(),
                    "when" => self.when.clone(),
                    "value" => number(self.value),
                    "threshold" => number(self.threshold),
                    "from" => self.from.clone(),
                    "to" => self.to.clone(),
                    "position" => self.position.to_string(),
                    "dir" => self.dir.clone(),
                    _ => return None,
                };
                Some((value, after))
            });
            match value {
                Some((value, after)) => {
                    filled.push_str(&value);
                    rest = after;
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled + rest
    }
}

/// True if an action is for alerts of this state. A program that does not get the state runs for firing alerts only: else it would page again.
pub(super) fn is_for(action: &Action, state: AlertState) -> bool {
    match (action, state) {
        (_, AlertState::Firing) | (Action::Webhook(_), AlertState::Resolved) => true,
        (Action::Run(words), AlertState::Resolved) => {
            words.iter().any(|word| word.contains("{state}"))
        }
        _ => false,
    }
}

/// Warnings about an action before its first alert: a program that cannot be run, unknown placeholders, files of TLS that cannot be used.
pub(super) fn doubts(action: &Action) -> Vec<String> {
    let words = match action {
        Action::Run(words) => words,
        Action::Webhook(webhook) => {
            let why = agent(webhook).err();
            return why.map(|why| format!("{why:#}")).into_iter().collect();
        }
    };
    let mut doubts = Vec::new();
    if let Some(program) = words.first().filter(|program| !program.contains('{'))
        && let Err(why) = runnable(Path::new(program))
    {
        doubts.push(format!(
            "cannot run '{program}': {why}; install it, or change run"
        ));
    }
    for name in words.iter().flat_map(|word| unknown(word)) {
        let hint = match nearest(name, PLACEHOLDERS.into_iter()).as_slice() {
            [] => format!("there are {{{}}}", PLACEHOLDERS.join("}, {")),
            near => format!("did you mean {{{}}}?", near.join("} or {")),
        };
        doubts.push(format!(
            "run has the unknown placeholder {{{name}}}, which is not replaced; {hint}"
        ));
    }
    doubts
}

fn runnable(program: &Path) -> io::Result<()> {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK)?;
    match program.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a file")),
    }
}

/// The names in braces that are not placeholders, except those that a shell or awk would read, such as `${HOME}`.
fn unknown(word: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('{') {
        rest = after;
        let Some((name, _)) = after.split_once('}') else {
            break;
        };
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if is_name && !before.ends_with('$') && !PLACEHOLDERS.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Carries an action out. Both results are a sentence for the record.
pub(super) fn perform(
    action: &Action,
    notice: &Notice,
    stopping: &AtomicBool,
) -> Result<String, String> {
    let began = Instant::now();
    let done = match action {
        Action::Run(words) => run(words, notice, stopping),
        Action::Webhook(webhook) => post(webhook, notice),
    };
    done.map(|what| format!("{what} after {} ms", began.elapsed().as_millis()))
        .map_err(|error| format!("{error:#}"))
}

fn agent(webhook: &Webhook) -> anyhow::Result<Agent> {
    web_client::agent(&webhook.address, WEBHOOK_MAX, webhook.tls.as_ref())
}

fn post(webhook: &Webhook, notice: &Notice) -> anyhow::Result<String> {
    let address = &webhook.address;
    let body = serde_json::to_string(notice).expect("texts and numbers are always JSON");
    let reply = agent(webhook)?
        .post(address)
        .content_type("application/json")
        .send(body);
    let status = match reply {
        Ok(reply) => reply.status(),
        Err(error) => {
            let why = plain(error, WEBHOOK_MAX, "let it answer first, and work then");
            anyhow::bail!("cannot post to {address}: {why}")
        }
    };
    match status.is_success() {
        true => Ok(format!("{address} answered {}", status.as_u16())),
        false => anyhow::bail!("{address} answered {status}"),
    }
}

fn run(words: &[String], notice: &Notice, stopping: &AtomicBool) -> anyhow::Result<String> {
    let mut filled = words.iter().map(|word| notice.filled(word));
    let program = filled.next().expect("a program has a path");
    let (mut output, input) = io::pipe()?;
    rustix::io::ioctl_fionbio(&output, true)?;
    let mut command = Command::new(&program);
    command
        .args(filled)
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input);
    let mut child = Program::start(&mut command, "")?;
    // This process must not hold the pipe open.
    drop(command);
    let deadline = Instant::now() + RUN_MAX;
    let mut kept = Vec::new();
    let mut is_open = true;
    let mut in_time = true;
    while !child.has_ended()? {
        if Instant::now() >= deadline || stopping.load(Ordering::Relaxed) {
            in_time = false;
            break;
        }
        if is_open {
            let mut ready = [PollFd::new(&output, PollFlags::IN)];
            // The program is looked after next, even if this was interrupted.
            let _ = poll(&mut ready, Some(&LOOK));
            is_open = keep_some(&mut output, &mut kept);
        }
        std::thread::sleep(BREATH);
    }
    // The programs that it started go too.
    child.signal(Signal::KILL);
    let status = child.wait()?;
    keep_some(&mut output, &mut kept);
    let said = String::from_utf8_lossy(&kept);
    let said = match said.trim() {
        "" => String::new(),
        said => format!(", and wrote: {said}"),
    };
    if !in_time {
        anyhow::bail!(
            "{program} was killed: it did not end within {RUN_MAX:?} or before the daemon{said}"
        );
    }
    match status.success() {
        true => Ok(format!("{program} succeeded{said}")),
        false => anyhow::bail!("{program} failed with {status}{said}"),
    }
}

/// Reads the bytes that the pipe holds now and keeps the first ones; false at its end.
fn keep_some(output: &mut PipeReader, kept: &mut Vec<u8>) -> bool {
    let mut piece = [0; 64 << 10];
    match output.read(&mut piece) {
        Ok(0) => false,
        Ok(bytes) => {
            let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(proven::at(&piece, ..bytes.min(room)));
            true
        }
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use loom_engine::Timestamp;

    use super::*;
    use crate::config::TlsDef;

    fn notice() -> Notice {
        Notice {
            rule: "slow; rm -rf {dir}".to_owned(),
            state: "firing",
            source: "redis".to_owned(),
            index: "latency".to_owned(),
            when: "p99 > 5ms".to_owned(),
            value: Some(5.5),
            threshold: Some(5.0),
            from: rfc3339(Timestamp(0)),
            to: rfc3339(Timestamp(1_000_000_000)),
            position: 7,
            dir: "/x".to_owned(),
        }
    }

    fn webhook(address: &str) -> Webhook {
        Webhook {
            address: address.to_owned(),
            tls: None,
        }
    }

    #[test]
    fn a_program_is_told_of_the_end_if_it_is_told_the_state() {
        let page = |word: &str| Action::Run(vec!["/bin/page".to_owned(), word.to_owned()]);
        let hook = Action::Webhook(webhook("http://x"));
        for action in [&page("{rule}"), &page("{rule} is {state}"), &hook] {
            assert!(is_for(action, AlertState::Firing));
            assert!(!is_for(action, AlertState::Failed));
        }
        assert!(!is_for(&page("{rule}"), AlertState::Resolved));
        assert!(is_for(&page("{rule} is {state}"), AlertState::Resolved));
        assert!(is_for(&hook, AlertState::Resolved));
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_named_before_the_alert() {
        let mut hook = webhook("https://127.0.0.1:1/");
        hook.tls = Some(TlsDef {
            ca: Some("/no/such/ca.pem".into()),
            ..TlsDef::default()
        });
        let found = doubts(&Action::Webhook(hook.clone()));
        assert!(
            found.len() == 1 && found[0].contains("/no/such/ca.pem"),
            "{found:?}"
        );
        let error = post(&hook, &notice()).unwrap_err();
        assert!(
            format!("{error:#}").contains("/no/such/ca.pem"),
            "{error:#}"
        );
    }

    fn shell(script: &str) -> Result<String, String> {
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        let action = Action::Run(words.into());
        perform(&action, &notice(), &AtomicBool::new(false))
    }

    #[test]
    fn arguments_are_filled_once_and_see_no_shell() {
        let filled = |word: &str| notice().filled(word);
        assert_eq!(
            filled("{rule}={value}>{threshold}"),
            "slow; rm -rf {dir}=5.5>5"
        );
        assert_eq!(
            filled("{from} {to}"),
            "1970-01-01T00:00:00Z 1970-01-01T00:00:01Z"
        );
        assert_eq!(filled("{hue} {{position}} {"), "{hue} {7} {");
        for name in PLACEHOLDERS {
            let word = format!("{{{name}}}");
            assert_ne!(filled(&word), word);
        }
        let words = ["/bin/echo", "{rule}"].map(str::to_owned);
        let said = perform(
            &Action::Run(words.into()),
            &notice(),
            &AtomicBool::new(false),
        );
        assert!(said.unwrap().contains("slow; rm -rf {dir}"));
    }

    #[test]
    fn a_program_that_cannot_run_and_a_placeholder_that_is_misspelt_are_named() {
        let of = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            doubts(&Action::Run(words.collect()))
        };
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "no program").unwrap();
        for (words, said) in [
            (vec!["/no/such/page"], "No such file"),
            (vec![plain.to_str().unwrap()], "Permission denied"),
            (vec!["/tmp"], "not a file"),
            (vec!["/bin/sh", "{rle} fired"], "did you mean {rule}?"),
            (
                vec!["/bin/sh", "{xyzxyz}"],
                "there are {rule}, {state}, {source}",
            ),
        ] {
            let found = of(&words);
            assert!(found.len() == 1 && found[0].contains(said), "{found:?}");
        }
        assert_eq!(
            of(&["/bin/sh", "-c", "echo ${home} {rule} {value} {A} {"]),
            [""; 0]
        );
    }

    #[test]
    fn a_program_that_fails_is_reported_with_what_it_wrote() {
        let error = shell("echo no pager >&2; exit 3").unwrap_err();
        assert!(error.contains("3") && error.contains("no pager"), "{error}");
        let action = Action::Run(vec!["/no/such/program".to_owned()]);
        let error = perform(&action, &notice(), &AtomicBool::new(false)).unwrap_err();
        assert!(error.contains("/no/such/program"), "{error}");
    }

    // case Rules: actions that fail, hang, fork or write without end
    #[test]
    fn output_without_end_is_bounded_and_the_program_is_killed() {
        let stopping = AtomicBool::new(false);
        let words = ["/bin/sh", "-c", "yes"].map(str::to_owned);
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                stopping.store(true, Ordering::Relaxed);
            });
            let error = perform(&Action::Run(words.into()), &notice(), &stopping).unwrap_err();
            assert!(error.contains("was killed") && error.len() < 2 * OUTPUT_BYTES_MAX);
        });
        assert!(began.elapsed() < RUN_MAX / 2);
    }

    // case Rules: actions that fail, hang, fork or write without end
    #[test]
    fn what_a_program_forks_does_not_outlive_it() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}", pid.display());
        shell(&script).unwrap();
        let pid: u32 = std::fs::read_to_string(pid)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let is_gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        let began = Instant::now();
        while !is_gone() {
            assert!(began.elapsed() < Duration::from_secs(5), "{pid} runs on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_webhook_gets_the_alert_and_its_answer_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/alert", listener.local_addr().unwrap());
        for (status, is_well) in [("200 OK", true), ("500 Broken", false)] {
            let result = std::thread::scope(|scope| {
                let asked = scope.spawn(|| {
                    let action = Action::Webhook(webhook(&address));
                    perform(&action, &notice(), &AtomicBool::new(false))
                });
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut piece = [0; 4096];
                    let bytes = stream.read(&mut piece).unwrap();
                    request.extend_from_slice(&piece[..bytes]);
                }
                let request = String::from_utf8(request).unwrap();
                assert!(request.starts_with("POST /alert ") && request.contains("\"value\":5.5"));
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
                asked.join().unwrap()
            });
            assert_eq!(result.is_ok(), is_well, "{result:?}");
        }
    }

    // case Rules: actions that fail, hang, fork or write without end
    #[test]
    fn a_webhook_that_never_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let began = Instant::now();
        let error = post(&webhook(&address), &notice()).unwrap_err().to_string();
        assert!(error.contains("cannot post to http://127.0.0.1"), "{error}");
        assert!(began.elapsed() < 2 * WEBHOOK_MAX);
    }
}
