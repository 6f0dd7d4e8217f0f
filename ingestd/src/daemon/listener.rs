//! Accepts connections, starts a thread for each, and ends them all when the daemon stops.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::access::may_push;
use super::clients::Clients;
use super::connection::{Connection, Service};
use super::peer::Peer;
use crate::config::AccessConfig;
use crate::protocol::{ErrorCode, Reply};
use crate::threads::join;

/// One more gets an error and is closed.
pub const CONNECTIONS_MAX: usize = 256;
/// A connection's thread parses TOML of clients, whose nesting its parser limits.
const STACK_BYTES: usize = 1 << 20;
/// All clients together have so long to take their answers once the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Listener {
    socket: Arc<UnixListener>,
    thread: JoinHandle<()>,
    registry: Arc<Registry>,
    /// Disconnected once every thread that holds a sender has ended.
    all_ended: Receiver<()>,
}

struct Registry {
    connections: Mutex<HashMap<u64, Open>>,
    clients: Arc<Clients>,
    stopping: AtomicBool,
}

struct Open {
    peer: Arc<Peer>,
    thread: JoinHandle<()>,
}

impl Listener {
    pub(super) fn start(
        socket: UnixListener,
        access: AccessConfig,
        service: Service,
        clients: Arc<Clients>,
    ) -> io::Result<Listener> {
        let socket = Arc::new(socket);
        let registry = Arc::new(Registry {
            connections: Mutex::default(),
            clients,
            stopping: AtomicBool::new(false),
        });
        let (running, all_ended) = bounded(0);
        let thread = std::thread::Builder::new()
            .name("loom-accept".to_owned())
            .spawn({
                let (socket, registry) = (Arc::clone(&socket), Arc::clone(&registry));
                move || {
                    let mut next_id = 0;
                    while let Some(stream) = registry.accept(&socket) {
                        next_id += 1;
                        if let Err(refusal) =
                            registry.admit(next_id, &stream, &access, &service, &running)
                        {
                            refuse(&stream, refusal);
                        }
                    }
                }
            })?;
        Ok(Listener {
            socket,
            thread,
            registry,
            all_ended,
        })
    }

    /// Accepts no more, takes in the bytes that every socket holds, and returns the connections once all of it is handed to the writer thread.
    /// Clients can delay that until one deadline; the disk takes as long as it needs.
    pub(super) fn stop(self) -> Vec<Arc<Peer>> {
        let deadline = Instant::now() + STOP_PATIENCE;
        self.registry.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let woken = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        woken.expect("a socket that listens can be shut down");
        join(self.thread);
        let open = std::mem::take(&mut *self.registry.connections());
        let open: Vec<Open> = open.into_values().collect();
        for open in &open {
            open.peer.stop_receiving();
        }
        if self.all_ended.recv_deadline(deadline) == Err(RecvTimeoutError::Timeout) {
            open.iter().for_each(|open| open.peer.hurry());
        }
        open.into_iter()
            .map(|open| {
                join(open.thread);
                open.peer
            })
            .collect()
    }
}

impl Registry {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The next connection; None once the daemon stops.
    fn accept(&self, socket: &UnixListener) -> Option<UnixStream> {
        loop {
            let accepted = socket.accept();
            if self.stopping.load(Ordering::SeqCst) {
                return None;
            }
            match accepted {
                Ok((stream, _)) => return Some(stream),
                Err(error) => {
                    // Out of descriptors, most likely: others may close soon.
                    tracing::warn!("cannot accept a connection: {error}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn admit(
        self: &Arc<Self>,
        id: u64,
        stream: &UnixStream,
        access: &AccessConfig,
        service: &Service,
        running: &Sender<()>,
    ) -> Result<(), (ErrorCode, String)> {
        if !may_push(stream, access) {
            let message = "this user may not use the daemon's socket; run as the daemon's user, or set [access] socket = \"group\"".to_owned();
            return Err((ErrorCode::NotPermitted, message));
        }
        let mut connections = self.connections();
        if connections.len() >= CONNECTIONS_MAX {
            let message =
                format!("all {CONNECTIONS_MAX} connections of the daemon are in use; close one");
            return Err((ErrorCode::TooManyConnections, message));
        }
        let failed = |error: io::Error| {
            (
                ErrorCode::Failed,
                format!("cannot start a thread for the connection: {error}"),
            )
        };
        let stream = stream.try_clone().map_err(failed)?;
        let connection = Connection::new(id, stream, service.clone());
        let peer = Arc::clone(connection.peer());
        let (registry, running) = (Arc::clone(self), running.clone());
        // The lock is held until the entry stands, so a thread that ends at once finds it.
        let thread = std::thread::Builder::new()
            .name(format!("loom-peer-{id}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                connection.serve();
                registry.leave(id);
                drop(running);
            })
            .map_err(failed)?;
        connections.insert(id, Open { peer, thread });
        self.count(&connections);
        Ok(())
    }

    /// Removes a connection that has ended. While the daemon stops, all stay listed, because each is owed a goodbye.
    fn leave(&self, id: u64) {
        if !self.stopping.load(Ordering::SeqCst) {
            let mut connections = self.connections();
            connections.remove(&id);
            self.count(&connections);
        }
    }

    fn count(&self, connections: &HashMap<u64, Open>) {
        let count = connections.len() as u64;
        self.clients.connections.store(count, Ordering::Relaxed);
    }
}

fn refuse(stream: &UnixStream, (code, message): (ErrorCode, String)) {
    let mut frame = Vec::new();
    Reply::Error {
        request: None,
        code,
        message,
    }
    .encode(&mut frame);
    // A fresh socket has room for it; the thread that accepts waits for no client.
    let _ = rustix::net::send(
        stream,
        &frame,
        rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
    );
}
