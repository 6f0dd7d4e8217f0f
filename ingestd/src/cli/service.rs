//! What systemd learns from a service of `Type=notify`; `run` and `serve` call it.
//!
//! Where the variable NOTIFY_SOCKET is not set, nobody listens and nothing is sent. The watchdog is fed only after the writer thread has
//! answered: a daemon that no longer writes is restarted.

use ingestd::daemon::Daemon;
use sd_notify::NotifyState;

/// It listens, or has read its configuration again; `status` says in words what it does.
pub(super) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
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
