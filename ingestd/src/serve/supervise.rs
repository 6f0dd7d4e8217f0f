//! Runs one server after the other, until a signal: a server that ends is started again after a pause, which grows while starts fail.

use std::time::{Duration, Instant};

use anyhow::bail;
use crossbeam_channel::{Receiver, RecvTimeoutError, select, tick};

use super::host::Host;
use super::server::{Said, Server, in_one_line};

const SECOND: Duration = Duration::from_secs(1);
/// A server that is started listens within this time.
const START_MAX: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A server that served longer was sound: the next pause is short again.
const SOUND: Duration = Duration::from_secs(60);

/// The state for a service manager.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum State {
    Serves,
    Restarts,
}

/// Serves until a signal comes. Fails if the first server does not come to listen; every later failure is a line in the log.
pub fn supervise(
    host: &Host,
    signals: &Receiver<i32>,
    mut report: impl FnMut(State),
) -> anyhow::Result<()> {
    let mut has_served = false;
    let mut pause = SECOND;
    loop {
        let end = host.start().and_then(|server| {
            serve(host, server, signals, || {
                has_served = true;
                report(State::Serves);
            })
        });
        let reason = match end {
            Ok(None) => return Ok(()),
            Err(error) if !has_served => return Err(error),
            Err(error) => format!("{error:#}"),
            Ok(Some(end)) => {
                if end.served > SOUND {
                    pause = SECOND;
                }
                end.reason
            }
        };
        tracing::error!("{reason}; it starts again in {} s", pause.as_secs());
        report(State::Restarts);
        if !matches!(signals.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return Ok(());
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The reason why a server that listened ended, and the time that it served.
struct End {
    reason: String,
    served: Duration,
}

/// Follows one server to its end; `None` after a signal. Fails if it does not come to listen.
fn serve(
    host: &Host,
    mut server: Server,
    signals: &Receiver<i32>,
    mut listens: impl FnMut(),
) -> anyhow::Result<Option<End>> {
    let options = host.options();
    let (lines, seconds) = (server.lines(), tick(SECOND));
    let started = Instant::now();
    let mut listens_since = None;
    let mut errors: Vec<String> = Vec::new();
    let reason = loop {
        select! {
            recv(signals) -> _ => return Ok(None),
            recv(lines) -> line => match line.map(Said::of) {
                Ok(Said::Listens) => {
                    tracing::info!("serving '{}' at {}", options.dir.display(), options.listen.uri());
                    listens_since = Some(Instant::now());
                    listens();
                }
                Ok(Said::Note(text)) => tracing::info!("duckdb: {text}"),
                Ok(Said::Error(text)) if listens_since.is_none() => errors.push(text),
                Ok(Said::Error(text)) => tracing::warn!("duckdb: {text}"),
                Err(_) => break format!("the server ended ({})", server.end()?),
            },
            recv(seconds) -> _ => {
                // A start is not a question.
                let busy = if listens_since.is_some() { server.cpu.busy()? } else { Duration::ZERO };
                if busy > options.cpu_busy_max {
                    break format!(
                        "the server was ended: it computed for {} s without a pause; --cpu-seconds allows {}",
                        busy.as_secs(),
                        options.cpu_busy_max.as_secs()
                    );
                }
                if listens_since.is_none() && started.elapsed() > START_MAX {
                    break format!("the server did not listen within {} s", START_MAX.as_secs());
                }
            }
        }
    };
    let Some(since) = listens_since else {
        let said = in_one_line(errors.iter().map(String::as_str));
        bail!("cannot serve '{}': {reason}: {said}", options.dir.display());
    };
    Ok(Some(End {
        reason,
        served: since.elapsed(),
    }))
}
