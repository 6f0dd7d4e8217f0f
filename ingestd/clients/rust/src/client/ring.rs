//! The client for applications that cannot afford a system call per record. It has five calls, and records go through shared memory.
//!
//! ```no_run
//! # fn main() -> Result<(), loom_client::ClientError> {
//! use loom_client::RingClient;
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
//! One thread owns a client; each thread of an application connects for itself. A fork of the process may not use it: every call then fails.
//!
//! A client outlives its daemon. Any call that finds the daemon gone looks for the next one. Until that runs, records wait in the client's own shared
//! memory; then they go to the daemon in their order, each once. The client cannot know whether the log has the records that a killed daemon was
//! storing: it does not push them again, and reports all of them to the next daemon's ledger.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loom_engine::SourceId;

use super::absence::{Absence, PATIENCE};
use super::source_ring::{LOOK_AGAIN, SourceRing, now};
use super::watch::Watch;
use super::{Client, ClientError, ClientOptions, Define, define_at_next, first_of};
use crate::protocol::Synced;
use crate::ring::{Opener, Producer, PushError};

/// The options of a ring client.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// A name for people; the daemon shows it.
    pub name: String,
    /// The space for records in each ring, in bytes: a power of two from 64 KiB to 64 MiB. 0 is the daemon's default.
    pub capacity_bytes: u64,
    /// How long calls wait for the next daemon before they fail; 60 s by default.
    pub patience: Duration,
}

impl Default for RingOptions {
    fn default() -> Self {
        RingOptions {
            name: String::new(),
            capacity_bytes: 0,
            patience: PATIENCE,
        }
    }
}

/// A connection, and a ring for each source that it defined.
pub struct RingClient {
    dir: PathBuf,
    options: RingOptions,
    opener: Opener,
    /// The directory's UUID. A different directory at the same path gets none of its records.
    uuid: [u8; 16],
    /// The definitions, for the next daemon.
    documents: Vec<String>,
    rings: Vec<SourceRing>,
    link: Link,
}

/// The connection to a daemon, or the time without one.
enum Link {
    To(Connected),
    Gone(Absence),
}

struct Connected {
    client: Client,
    /// `None` only while this is dropped.
    watch: Option<Watch>,
}

impl RingClient {
    /// Connects to the daemon that runs on `dir`.
    pub fn connect(dir: &Path) -> Result<RingClient, ClientError> {
        RingClient::connect_with(dir, RingOptions::default())
    }

    /// Connects with the given options.
    pub fn connect_with(dir: &Path, options: RingOptions) -> Result<RingClient, ClientError> {
        let connected = Connected::to(dir, &options.name)?;
        Ok(RingClient {
            dir: dir.to_owned(),
            options,
            opener: connected.client.opener,
            uuid: connected.client.welcome.uuid,
            documents: Vec::new(),
            rings: Vec::new(),
            link: Link::To(connected),
        })
    }

    /// Defines every `[[source]]` of a TOML document, as [`Client::define`] does, and opens a ring for each.
    pub fn define(&mut self, toml: &str) -> Result<Vec<(SourceId, String)>, ClientError> {
        let is_new = self.documents.iter().all(|known| known != toml);
        if is_new && !self.rings.is_empty() {
            // The next daemon gets records of the rings with the layout of the last definition, so all must have it.
            self.sync()?;
        }
        let sources = self.ask(|connected| connected.client.define(toml))?;
        if is_new {
            self.documents.push(toml.to_owned());
        }
        for (source, name) in &sources {
            if self.rings.iter().any(|ring| ring.source == *source) {
                continue;
            }
            let capacity_bytes = self.options.capacity_bytes;
            let producer = self.ask(|connected| connected.open_ring(*source, capacity_bytes))?;
            self.rings
                .push(SourceRing::new(*source, name.clone(), producer));
        }
        Ok(sources)
    }

    /// Defines the first source of a TOML document, as [`RingClient::define`] does.
    pub fn define_one(&mut self, toml: &str) -> Result<SourceId, ClientError> {
        first_of(&self.define(toml)?)
    }

    /// Pushes one payload in the layout of its source, without the own time: if the source has own time, it is the time of this call. If the ring is
    /// full, this waits for space, or counts the record as dropped, as the source's `on_overload` says; it does the same while no daemon runs. If no
    /// daemon runs for longer than the client's patience, this fails until one runs again.
    #[inline]
    pub fn push(&mut self, source: SourceId, payload: &[u8]) -> Result<(), ClientError> {
        let ring = self.rings.iter_mut().find(|ring| ring.source == source);
        let Some(ring) = ring else {
            return Err(ClientError::NotDefined(source));
        };
        match ring.producer.push(payload) {
            Ok(()) => Ok(()),
            Err(why) => self.not_pushed(source, payload, why),
        }
    }

    /// Returns when everything that was pushed before is visible to queries (durable, if the directory's durability is `batch`), with the counts of
    /// this connection, or the counts since the current daemon took over the rings.
    pub fn sync(&mut self) -> Result<Synced, ClientError> {
        let begun = now();
        let synced = self.ask(|connected| connected.client.sync())?;
        self.rings.iter_mut().for_each(|ring| ring.synced(begun));
        Ok(synced)
    }

    /// The records in the rings that the log does not have yet. The number is exact while no daemon runs.
    pub fn untaken(&self) -> u64 {
        self.rings.iter().map(SourceRing::untaken).sum()
    }

    /// Syncs and ends the connection.
    pub fn close(mut self) -> Result<Synced, ClientError> {
        self.sync()
    }

    /// Asks the daemon, or the next one if there is none or it ends meanwhile.
    fn ask<T>(
        &mut self,
        mut question: impl FnMut(&Connected) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.check_process()?;
        let begun = Instant::now();
        loop {
            let connected = match &mut self.link {
                Link::To(connected) => connected,
                Link::Gone(absence) => {
                    absence.sleep_until_look();
                    if !self.look()? && begun.elapsed() > self.options.patience {
                        return Err(self.absent());
                    }
                    continue;
                }
            };
            match question(connected) {
                Err(error) if error.is_absence() && connected.client.has_ended() => {
                    self.lose(Absence::begin())?;
                }
                answer => return answer,
            }
        }
    }

    /// Handles a record that its ring did not take.
    #[cold]
    fn not_pushed(
        &mut self,
        source: SourceId,
        payload: &[u8],
        mut why: PushError,
    ) -> Result<(), ClientError> {
        self.check_process()?;
        loop {
            let is_full = why == PushError::Full;
            if is_full && self.ring(source)?.drops() {
                return Ok(());
            }
            match (why, &self.link) {
                (PushError::Full, Link::To(connected)) => {
                    if connected.client.is_hung_up(LOOK_AGAIN) {
                        self.lose(Absence::begin())?;
                    }
                }
                (PushError::Full, Link::Gone(absence)) => absence.sleep_until_look(),
                (PushError::Closed, Link::To(_)) => self.lose(Absence::begin())?,
                (PushError::Closed, Link::Gone(_)) => {}
                (PushError::Forked | PushError::TooLong { .. }, _) => return Err(why.into()),
            }
            let is_gone = match &self.link {
                Link::To(_) => false,
                Link::Gone(absence) => {
                    let is_over = absence.is_longer_than(self.options.patience);
                    let is_found = absence.is_look_due() && self.look()?;
                    if is_over && !is_found {
                        return Err(self.absent());
                    }
                    !is_found
                }
            };
            let ring = &mut self.ring(source)?.producer;
            let pushed = if is_gone {
                ring.push_waiting(payload)
            } else {
                ring.push(payload)
            };
            match pushed {
                Ok(()) => return Ok(()),
                Err(again) => why = again,
            }
        }
    }

    fn ring(&mut self, source: SourceId) -> Result<&mut SourceRing, ClientError> {
        let ring = self.rings.iter_mut().find(|ring| ring.source == source);
        ring.ok_or(ClientError::NotDefined(source))
    }

    /// The daemon is gone: records wait from now on.
    fn lose(&mut self, absence: Absence) -> Result<(), ClientError> {
        for ring in &mut self.rings {
            ring.wait_for_next()?;
        }
        self.link = Link::Gone(absence);
        Ok(())
    }

    /// Looks for the next daemon. Returns whether it runs and has taken the waiting records.
    fn look(&mut self) -> Result<bool, ClientError> {
        let found = define_at_next(|define| self.connect_next(define));
        if let Link::Gone(absence) = &mut self.link {
            absence.looked_in_vain();
        }
        match found {
            Ok(()) => Ok(true),
            Err(error) if error.is_absence() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn connect_next(&mut self, define: Define) -> Result<(), ClientError> {
        let connected = Connected::to(&self.dir, &self.options.name)?;
        if connected.client.welcome.uuid != self.uuid {
            return Err(ClientError::Replaced(self.dir.clone()));
        }
        for toml in &self.documents {
            define(&connected.client, toml)?;
        }
        let mut opened = Vec::with_capacity(self.rings.len());
        for ring in &self.rings {
            let next = connected.open_ring(ring.source, self.options.capacity_bytes)?;
            if !ring.is_final(&next) {
                // The same daemon has ended the connection, and still stores its records.
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            opened.push(next);
        }
        for (ring, next) in self.rings.iter_mut().zip(opened) {
            ring.take_next(next);
        }
        let rings = &mut self.rings;
        let handed = rings
            .iter_mut()
            .try_for_each(|ring| ring.hand_over(&connected.client));
        let before = std::mem::replace(&mut self.link, Link::To(connected));
        if let (Err(_), Link::Gone(absence)) = (&handed, before) {
            self.lose(absence)?;
        }
        handed
    }

    fn absent(&self) -> ClientError {
        ClientError::Absent {
            dir: self.dir.clone(),
            patience: self.options.patience,
            waiting: self.untaken(),
        }
    }

    fn check_process(&self) -> Result<(), ClientError> {
        let is_own = self.opener.is_this_process();
        is_own.then_some(()).ok_or(PushError::Forked.into())
    }
}

impl Drop for RingClient {
    /// The daemon takes the records that are in the rings. Records that wait for the next daemon go to it if it runs by now. In a fork nothing
    /// happens.
    fn drop(&mut self) {
        if self.check_process().is_err() {
            return;
        }
        if let Link::To(connected) = &self.link
            && connected.client.is_hung_up(Duration::ZERO)
        {
            // If there is no memory for waiting records, those that are held are lost.
            let _ = self.lose(Absence::begin());
        }
        if matches!(self.link, Link::Gone(_)) && self.untaken() > 0 {
            // Only a sync shows whether the records arrive.
            let _ = define_at_next(|define| self.connect_next(define));
        }
    }
}

impl Connected {
    fn to(dir: &Path, name: &str) -> Result<Connected, ClientError> {
        let options = ClientOptions {
            name: name.to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::connect_for_requests(dir, &options)?;
        let watch = Watch::start(client.shared.hang_up.try_clone()?)?;
        Ok(Connected {
            client,
            watch: Some(watch),
        })
    }

    fn open_ring(&self, source: SourceId, capacity_bytes: u64) -> Result<Producer, ClientError> {
        let ring = self.client.open_ring(source, capacity_bytes)?;
        if let Some(watch) = &self.watch {
            watch.add(&ring);
        }
        Ok(ring)
    }
}

impl Drop for Connected {
    /// Ends the connection, even if a forked process has a copy of it. A fork leaves it alone, and has no thread.
    fn drop(&mut self) {
        let watch = self.watch.take();
        if self.client.check_process().is_ok() {
            self.client.hang_up();
            watch.into_iter().for_each(Watch::join);
        } else {
            std::mem::forget(watch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::absence::tests::{check_60_seconds, client_of, of_59_seconds};
    use super::*;
    use crate::ring::{Consumer, Stamps, WhenFull};

    #[test]
    fn a_push_fails_by_default_after_60_seconds_without_a_daemon() {
        let mut client = client_of(RingClient::connect).unwrap();
        let (_consumer, descriptor) =
            Consumer::create(64 << 10, Stamps::None, WhenFull::Wait).unwrap();
        let producer = Producer::open(descriptor).unwrap();
        let source = SourceId(1);
        client
            .rings
            .push(SourceRing::new(source, "n".to_owned(), producer));
        let begun = Instant::now();
        client.lose(of_59_seconds()).unwrap();
        let error = loop {
            if let Err(error) = client.push(source, &[0; 1000]) {
                break error;
            }
        };
        match error {
            ClientError::Absent {
                patience, waiting, ..
            } => {
                check_60_seconds(patience, begun);
                assert!(waiting > 50, "{waiting} records wait");
            }
            error => panic!("{error}"),
        }
    }
}
