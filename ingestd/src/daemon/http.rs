//! `GET /metrics`, `/livez` and `/readyz` on a loopback address, for monitoring.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use loom_otlp::{Page, Server};

use super::exposition;
use super::message::{Inbox, Request};
use super::status::DaemonStatus;

const TEXT: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const GONE: &str = "the writer thread has failed; start the daemon again";

pub(super) fn start(bound: TcpListener, inbox: Inbox) -> io::Result<Server> {
    let alive = inbox.clone();
    let livez = move || match alive.is_alive() {
        true => Ok("alive\n".to_owned()),
        false => Err(GONE.to_owned()),
    };
    let ready = inbox.clone();
    let readyz = move || match status(&ready)?.trouble {
        None => Ok("ready\n".to_owned()),
        Some(trouble) => Err(trouble),
    };
    let metrics = move || -> Page { Ok(exposition::render(&status(&inbox)?)) };
    Server::pages(
        bound,
        vec![
            ("/metrics", EXPOSITION, Arc::new(metrics)),
            ("/livez", TEXT, Arc::new(livez)),
            ("/readyz", TEXT, Arc::new(readyz)),
        ],
    )
}

fn status(inbox: &Inbox) -> Result<DaemonStatus, String> {
    let status = inbox.ask(Request::Status);
    status.map_err(|_| GONE.to_owned())
}
