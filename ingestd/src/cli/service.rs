//! Notifies systemd of the state of a service of `Type=notify`, for `run` and `serve`.
//!
//! Nothing is sent if the variable NOTIFY_SOCKET is not set. The watchdog is fed only after the writer thread has answered, so a daemon that no
//! longer writes is restarted.

use ingestd::daemon::Daemon;
use sd_notify::NotifyState;

/// The service is ready, or has read its configuration again; `status` describes its work.
pub(super) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again; [`ready`] follows.
pub(super) fn reloading() {
    notify(&[NotifyState::Reloading]);
}

/// The service is stopping; the watchdog no longer waits.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Feeds the watchdog, if there is one, when the writer thread answers.
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
