//! What systemd learns from a daemon that runs as a service of `Type=notify`; `run` calls it.
//!
//! Where the variable NOTIFY_SOCKET is not set, nobody listens and nothing is sent. The watchdog is fed only after the writer thread has
//! answered: a daemon that no longer writes is restarted.

use ingestd::daemon::Daemon;
use sd_notify::NotifyState;

/// The daemon listens, or has read its configuration again.
pub(super) fn ready(daemon: &Daemon) {
    let status = format!("recording into {}", daemon.dir().display());
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// SIGHUP came; [`ready`] follows.
pub(super) fn reloading() {
    notify(&[NotifyState::Reloading]);
}

/// Records are on their way to the disk; no watchdog waits any more.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Waits until the writer thread answers, if a watchdog wants to know.
pub(super) fn feed_watchdog(daemon: &Daemon) {
    if sd_notify::watchdog_enabled().is_some() && daemon.answers() {
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify systemd: {error}; the unit needs NotifyAccess=main");
    }
}
