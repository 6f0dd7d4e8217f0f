//! A client over the socket that outlives its daemon.
//!
//! A call that finds the daemon gone looks for the next one, as long as its patience says. What was acknowledged is stored once. Of the rest,
//! what surely was not stored goes to the next daemon: batches that were not sent, and those that a daemon which stopped in good order did not
//! count. What a killed daemon was given and had not acknowledged is *unsure*: the log has some, all or none of it. It is never sent again; it
//! is counted, and reported to the next daemon's ledger.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loom_engine::schema::{TimeKind, parse_sources};
use loom_engine::{SourceId, TimeRange};

use super::absence::{Absence, PATIENCE};
use super::kept::{Batch, Kept};
use super::source_ring::{now, with_slack};
use super::{Client, ClientError, ClientOptions, first_of};
use crate::protocol::{Counts, Depth, LostCause, Shape, Synced, Welcome};

/// So many bytes that are not acknowledged call for a sync.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// So does the oldest batch at this age.
const KEPT_TIME_MAX: Duration = Duration::from_millis(500);

/// What a lasting client asks for.
#[derive(Clone, Debug)]
pub struct LastingOptions {
    /// What the daemon calls this client, for people.
    pub name: String,
    /// How long calls wait for the next daemon before they fail; 60 s unless it is set.
    pub patience: Duration,
    /// Once set, no call waits: without a daemon it fails after one look.
    pub stop: Arc<AtomicBool>,
}

impl Default for LastingOptions {
    fn default() -> Self {
        LastingOptions {
            name: String::new(),
            patience: PATIENCE,
            stop: Arc::default(),
        }
    }
}

/// What became of everything that was pushed: `counts.received + unsure + unsent` is all of it, once it has been synced.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What daemons acknowledged.
    pub counts: Counts,
    /// Records that killed daemons may have stored or not.
    pub unsure: u64,
    /// Records that no daemon has got.
    pub unsent: u64,
    /// Why the latest refused record was refused; empty where none was.
    pub reason: String,
}

/// One thread's way to the daemons of one directory, one after the other.
pub struct LastingClient {
    dir: PathBuf,
    options: LastingOptions,
    /// The directory's UUID and limits: another directory in its place gets none of its records.
    welcome: Welcome,
    /// What was defined, for the next daemon.
    documents: Vec<(String, Vec<(SourceId, String)>)>,
    sources: BTreeMap<SourceId, Defined>,
    link: Link,
    kept: Kept,
    /// Acknowledged over this connection.
    confirmed: Counts,
    /// Rows that this connection's counts have as refused, and that were never pushed.
    noted: u64,
    /// Acknowledged over the connections before.
    before: Counts,
    reason: String,
    /// Why the latest connection ended.
    why: String,
    /// Daemons that took over from another one.
    successors: u64,
}

struct Defined {
    name: String,
    time: TimeKind,
    /// Everything pushed before is acknowledged.
    since: loom_engine::Timestamp,
    unsure: u64,
    /// Unsure records that no ledger has yet, with their times.
    unreported: Option<(u64, TimeRange)>,
}

/// The way to a daemon, or the time since there is none.
enum Link {
    To(Client),
    Gone(Absence),
}

impl LastingClient {
    /// Connects to the daemon that runs on `dir`. Without one it fails at once.
    pub fn connect(dir: &Path) -> Result<LastingClient, ClientError> {
        LastingClient::connect_with(dir, LastingOptions::default())
    }

    /// Connects with the given options.
    pub fn connect_with(dir: &Path, options: LastingOptions) -> Result<LastingClient, ClientError> {
        let client = connect(dir, &options.name)?;
        Ok(LastingClient {
            dir: dir.to_owned(),
            options,
            welcome: *client.welcome(),
            documents: Vec::new(),
            sources: BTreeMap::new(),
            link: Link::To(client),
            kept: Kept::default(),
            confirmed: Counts::default(),
            noted: 0,
            before: Counts::default(),
            reason: String::new(),
            why: String::new(),
            successors: 0,
        })
    }

    /// The first daemon's answer to the hello: its limits, and the directory's UUID.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Defines every `[[source]]` of a TOML document, as [`Client::define`] does, also with each daemon that follows.
    pub fn define(&mut self, toml: &str) -> Result<Vec<(SourceId, String)>, ClientError> {
        let defined = self.ask(|client| client.define(toml))?;
        let times: BTreeMap<String, TimeKind> = parse_sources(toml)
            .unwrap_or_default()
            .into_iter()
            .map(|def| (def.name, def.time))
            .collect();
        for (id, name) in &defined {
            self.sources.entry(*id).or_insert_with(|| Defined {
                name: name.clone(),
                time: times.get(name).copied().unwrap_or(TimeKind::Arrival),
                since: now(),
                unsure: 0,
                unreported: None,
            });
        }
        if !self.documents.iter().any(|(known, _)| known == toml) {
            self.documents.push((toml.to_owned(), defined.clone()));
        }
        Ok(defined)
    }

    /// Defines the first source of a TOML document, as [`LastingClient::define`] does.
    pub fn define_one(&mut self, toml: &str) -> Result<SourceId, ClientError> {
        first_of(&self.define(toml)?)
    }

    /// Hands over a batch of payloads of a source that this client defined, in the shapes of [`Client::push_batch`]; one that ends with half a
    /// payload is refused as a whole. Where it fails because no daemon runs, the batch waits for one with those before.
    pub fn push_batch(
        &mut self,
        source: SourceId,
        shape: Shape,
        payloads: &[u8],
    ) -> Result<(), ClientError> {
        if !self.sources.contains_key(&source) {
            return Err(ClientError::NotDefined(source));
        }
        if self.kept.bytes() >= KEPT_BYTES_MAX {
            self.acknowledge(Depth::Configured)?;
        }
        self.kept.keep(source, shape, payloads)?;
        self.hand_over()?;
        self.tick()
    }

    /// Sends what the buffer holds, without waiting for the daemon to take it in.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.ask(Client::flush)
    }

    /// Syncs if that is due. One who pushes seldom calls it at times, so that little is unsure if the daemon is killed.
    pub fn tick(&mut self) -> Result<(), ClientError> {
        if self.kept.bytes() >= KEPT_BYTES_MAX || self.kept.age() >= KEPT_TIME_MAX {
            self.acknowledge(Depth::Configured)?;
        }
        Ok(())
    }

    /// Returns when everything pushed before is visible to queries or unsure.
    pub fn sync(&mut self) -> Result<Outcome, ClientError> {
        self.acknowledge(Depth::Configured)?;
        Ok(self.outcome())
    }

    /// Returns when everything pushed before is durable or unsure.
    pub fn sync_durable(&mut self) -> Result<Outcome, ClientError> {
        self.acknowledge(Depth::Durable)?;
        Ok(self.outcome())
    }

    /// Enters rows in the ledger that were to become records, as [`Client::report_refused`] does.
    pub fn report_refused(
        &mut self,
        source: &str,
        records: u32,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.ask(|client| client.report_refused(source, records, reason))?;
        self.noted += u64::from(records);
        Ok(())
    }

    /// Enters records in the ledger that were lost before this client had them, as [`Client::report_lost`] does.
    pub fn report_lost(
        &mut self,
        source: &str,
        records: u64,
        span: TimeRange,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.ask(|client| client.report_lost(source, records, span, reason))
    }

    /// What is known now.
    pub fn outcome(&self) -> Outcome {
        let mut counts = self.before;
        counts.add(self.confirmed);
        Outcome {
            counts,
            unsure: self.sources.values().map(|source| source.unsure).sum(),
            unsent: self.kept.unsent(),
            reason: self.reason.clone(),
        }
    }

    /// Records that killed daemons may have stored or not, by the names of their sources.
    pub fn unsure(&self) -> impl Iterator<Item = (&str, u64)> {
        let unsure = self.sources.values().filter(|source| source.unsure > 0);
        unsure.map(|source| (source.name.as_str(), source.unsure))
    }

    /// How many daemons took over from the one before, and why the latest connection ended; empty where none has.
    pub fn successors(&self) -> (u64, &str) {
        (self.successors, &self.why)
    }

    /// Asks the daemon, or the next one if it ends meanwhile. Everything kept is sent before.
    fn ask<T>(
        &mut self,
        mut question: impl FnMut(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        loop {
            self.hand_over()?;
            let Link::To(client) = &self.link else {
                continue;
            };
            match question(client) {
                Err(error) if error.is_absence() => self.lose(error),
                answer => return answer,
            }
        }
    }

    /// Returns when a daemon has been sent everything.
    fn hand_over(&mut self) -> Result<(), ClientError> {
        loop {
            self.find_daemon()?;
            let Link::To(client) = &self.link else {
                continue;
            };
            match self.kept.send(client) {
                Err(error) if error.is_absence() => self.lose(error),
                sent => return sent,
            }
        }
    }

    fn acknowledge(&mut self, depth: Depth) -> Result<(), ClientError> {
        let begun = now();
        let synced = self.ask(|client| client.sync_to(depth))?;
        self.settle(&synced)?;
        if self.kept.has_sent() {
            return Err(wrong_counts());
        }
        for source in self.sources.values_mut() {
            source.since = begun;
        }
        Ok(())
    }

    /// Takes what a daemon says of this connection: the oldest records are those that it counts.
    fn settle(&mut self, synced: &Synced) -> Result<(), ClientError> {
        let mut counts = synced.counts;
        for count in [&mut counts.received, &mut counts.refused] {
            *count = count.checked_sub(self.noted).ok_or_else(wrong_counts)?;
        }
        let received = counts.received.checked_sub(self.confirmed.received);
        if self.kept.acknowledge(received.ok_or_else(wrong_counts)?) > 0 {
            return Err(wrong_counts());
        }
        self.confirmed = counts;
        if !synced.reason.is_empty() {
            self.reason.clone_from(&synced.reason);
        }
        Ok(())
    }

    /// The daemon is gone: what it took is acknowledged by its goodbye, or unsure.
    fn lose(&mut self, error: ClientError) {
        let gone = std::mem::replace(&mut self.link, Link::Gone(Absence::begin()));
        let Link::To(client) = gone else {
            return;
        };
        let last = match error {
            ClientError::Stopped(_) => error,
            error => client.shared.replies().last_word().unwrap_or(error),
        };
        let is_known = match &last {
            ClientError::Stopped(synced) => self.settle(synced).is_ok(),
            _ => false,
        };
        while !is_known && let Some(batch) = self.kept.take_sent() {
            if let Some(source) = self.sources.get_mut(&batch.source) {
                source.lose(&batch);
            }
        }
        self.kept.unsend();
        self.before.add(std::mem::take(&mut self.confirmed));
        self.noted = 0;
        self.why = last.to_string();
    }

    /// Waits until a daemon runs, with back-off.
    fn find_daemon(&mut self) -> Result<(), ClientError> {
        while let Link::Gone(absence) = &mut self.link {
            absence.sleep_until_look_or(&self.options.stop);
            absence.looked_in_vain();
            let is_over = absence.is_longer_than(self.options.patience);
            let is_stopped = self.options.stop.load(Ordering::Relaxed);
            match self.connect_next() {
                Ok(client) => {
                    self.link = Link::To(client);
                    self.successors += 1;
                }
                Err(error) if !error.is_absence() => return Err(error),
                Err(_) if is_over || is_stopped => return Err(self.no_successor(is_over)),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn no_successor(&self, is_over: bool) -> ClientError {
        let Outcome { unsent, unsure, .. } = self.outcome();
        let (why, dir) = (self.why.clone(), self.dir.clone());
        match is_over {
            true => ClientError::NoSuccessor {
                why,
                dir,
                patience: self.options.patience,
                unsent,
                unsure,
            },
            false => ClientError::WaitStopped {
                why,
                dir,
                unsent,
                unsure,
            },
        }
    }

    fn connect_next(&mut self) -> Result<Client, ClientError> {
        let client = connect(&self.dir, &self.options.name)?;
        if client.welcome().uuid != self.welcome.uuid {
            return Err(ClientError::Replaced(self.dir.clone()));
        }
        for (toml, before) in &self.documents {
            if client.define(toml)? != *before {
                return Err(ClientError::Protocol(
                    "the next daemon gives the sources other ids".to_owned(),
                ));
            }
        }
        for source in self.sources.values_mut() {
            source.report(&client)?;
        }
        Ok(client)
    }
}

impl Defined {
    /// The daemon that was given the batch was killed.
    fn lose(&mut self, batch: &Batch) {
        let own = match self.time {
            TimeKind::Own => batch.own_times(),
            TimeKind::Arrival => None,
        };
        let span = own.unwrap_or_else(|| with_slack(self.since));
        let (records, span) = match self.unreported {
            None => (0, span),
            Some((records, before)) => (
                records,
                TimeRange {
                    first: before.first.min(span.first),
                    last: before.last.max(span.last),
                },
            ),
        };
        self.unreported = Some((records + batch.records, span));
        self.unsure += batch.records;
    }

    fn report(&mut self, client: &Client) -> Result<(), ClientError> {
        if let Some((records, span)) = self.unreported {
            let why = "a daemon was killed while it stored them; the log may have some";
            client.report_lost_by(LostCause::DaemonKilled, &self.name, records, span, why)?;
            self.unreported = None;
        }
        Ok(())
    }
}

fn connect(dir: &Path, name: &str) -> Result<Client, ClientError> {
    let options = ClientOptions {
        name: name.to_owned(),
        ..ClientOptions::default()
    };
    Client::connect_with(dir, options)
}

fn wrong_counts() -> ClientError {
    ClientError::Protocol("its counts are not those of what was pushed".to_owned())
}
