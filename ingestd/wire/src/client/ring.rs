//! The client for applications that cannot spare a system call: five calls, and records go through shared memory.
//!
//! ```no_run
//! # fn main() -> Result<(), loom_wire::client::ClientError> {
//! use loom_wire::client::RingClient;
//!
//! let mut client = RingClient::connect("/var/lib/loom".as_ref())?;
//! let source = client.define_one("[[source]]\nname = 'requests'\ntime = 'own'\n[[source.field]]\nname = 'ns'\ntype = 'u64'")?;
//! client.push(source, &7u64.to_le_bytes())?;
//! let synced = client.close()?;
//! assert_eq!(synced.counts.stored, 1);
//! # Ok(())
//! # }
//! ```
//!
//! One thread owns a client; each thread of an application connects for itself. A fork of the process may not use it: every call says so.

use std::path::Path;
use std::time::Duration;

use loom_engine::SourceId;
use loom_ring::{Producer, PushError, WhenFull};

use super::{Client, ClientError, ClientOptions, first_of};
use crate::protocol::Synced;

/// How long a push that waits for room sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// After so many drops in a row a push looks whether the daemon is still there.
const DROPS_PER_LOOK: u64 = 1024;

/// What a ring client asks for.
#[derive(Clone, Debug, Default)]
pub struct RingOptions {
    /// What the daemon calls this client, for people.
    pub name: String,
    /// Room for records in each ring, in bytes: a power of two from 64 KiB to 64 MiB. 0 is the daemon's default.
    pub capacity_bytes: u64,
}

/// A connection, and a ring for each source that it defined.
pub struct RingClient {
    client: Client,
    rings: Vec<(SourceId, Producer)>,
    capacity_bytes: u64,
}

impl RingClient {
    /// Connects to the daemon that runs on `dir`.
    pub fn connect(dir: &Path) -> Result<RingClient, ClientError> {
        RingClient::connect_with(dir, RingOptions::default())
    }

    /// Connects with the given options.
    pub fn connect_with(dir: &Path, options: RingOptions) -> Result<RingClient, ClientError> {
        let RingOptions {
            name,
            capacity_bytes,
        } = options;
        let options = ClientOptions {
            name,
            ..ClientOptions::default()
        };
        Ok(RingClient {
            client: Client::connect_with(dir, options)?,
            rings: Vec::new(),
            capacity_bytes,
        })
    }

    /// Defines every `[[source]]` of a TOML document, as [`Client::define`] does, and opens a ring for each.
    pub fn define(&mut self, toml: &str) -> Result<Vec<(SourceId, String)>, ClientError> {
        let sources = self.client.define(toml)?;
        for (source, _) in &sources {
            if !self.rings.iter().any(|(known, _)| known == source) {
                let ring = self.client.open_ring(*source, self.capacity_bytes)?;
                self.rings.push((*source, ring));
            }
        }
        Ok(sources)
    }

    /// Defines the first source of a TOML document, as [`RingClient::define`] does.
    pub fn define_one(&mut self, toml: &str) -> Result<SourceId, ClientError> {
        first_of(&self.define(toml)?)
    }

    /// Pushes one payload, in the layout of its source without the own time: where the source has own time, it is the time of this call. Where
    /// the ring is full, this waits for room, or counts the record as dropped, as the source's `on_overload` says.
    #[inline]
    pub fn push(&mut self, source: SourceId, payload: &[u8]) -> Result<(), ClientError> {
        let ring = self.rings.iter_mut().find(|(known, _)| *known == source);
        let Some((_, ring)) = ring else {
            return Err(ClientError::NotDefined(source));
        };
        match ring.push(payload) {
            Ok(()) => Ok(()),
            Err(why) => not_pushed(&self.client, ring, payload, why),
        }
    }

    /// Returns when everything pushed before is visible to queries (durable, where the directory's durability is `batch`), with the counts of
    /// what became of it.
    pub fn sync(&mut self) -> Result<Synced, ClientError> {
        self.client.sync()
    }

    /// Records that stand in the rings and that the daemon has not taken. Exact once the daemon is gone, which any other call reports.
    pub fn untaken(&self) -> u64 {
        self.rings.iter().map(|(_, ring)| ring.untaken()).sum()
    }

    /// Syncs and ends the connection.
    pub fn close(mut self) -> Result<Synced, ClientError> {
        self.sync()
    }
}

impl Drop for RingClient {
    /// What was pushed stays in the rings, and the daemon takes it. In a fork nothing happens: the connection is the other process's.
    fn drop(&mut self) {
        if self.client.check_process().is_ok() {
            self.client.hang_up();
        }
    }
}

/// What becomes of a record that its ring did not take.
#[cold]
fn not_pushed(
    client: &Client,
    ring: &mut Producer,
    payload: &[u8],
    mut why: PushError,
) -> Result<(), ClientError> {
    if why == PushError::Full && ring.when_full() == WhenFull::Drop {
        ring.drop_one();
        let looks = ring.dropped().is_multiple_of(DROPS_PER_LOOK);
        if looks && client.is_hung_up(Duration::ZERO) {
            return Err(end_of(client));
        }
        return Ok(());
    }
    while why == PushError::Full {
        if client.is_hung_up(LOOK_AGAIN) {
            return Err(end_of(client));
        }
        match ring.push(payload) {
            Ok(()) => return Ok(()),
            Err(again) => why = again,
        }
    }
    match why {
        PushError::Closed => Err(end_of(client)),
        why => Err(why.into()),
    }
}

/// Why the daemon closed the ring or the connection.
fn end_of(client: &Client) -> ClientError {
    match client.sync() {
        Err(error) => error,
        Ok(_) => PushError::Closed.into(),
    }
}
