//! A client over the socket that outlives its daemon.
//!
//! A call that finds the daemon gone looks for the next one within its patience. Acknowledged records are stored once. Of the others, those that
//! certainly were not stored go to the next daemon: batches that were not sent, and those that a daemon did not count before it stopped regularly.
//! Records that a killed daemon got and did not acknowledge are *unsure*: the log has some, all or none of them. They are never sent again; the
//! client counts them and reports them to the next daemon's ledger.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loom_engine::schema::{TimeKind, parse_sources};
use loom_engine::{SourceId, TimeRange};

use super::absence::{Absence, PATIENCE};
use super::kept::{Batch, Kept, hull};
use super::source_ring::{now, with_slack};
use super::{Client, ClientError, ClientOptions, Define, define_at_next, first_of};
use crate::protocol::{Counts, Depth, LostCause, Shape, Synced, Welcome};

/// The client syncs when so many bytes are not acknowledged.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// It also syncs when the oldest batch has this age.
const KEPT_TIME_MAX: Duration = Duration::from_millis(500);

/// The options of a lasting client.
#[derive(Clone, Debug)]
pub struct LastingOptions {
    /// A name for people; the daemon shows it.
    pub name: String,
    /// How long calls wait for the next daemon before they fail; 60 s by default.
    pub patience: Duration,
    /// Once this is set, no call waits: without a daemon it fails after one look.
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

/// The result for everything that was pushed. After a sync, `counts.received + unsure + unsent` is all of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The records that daemons acknowledged.
    pub counts: Counts,
    /// Records that killed daemons may have stored or not.
    pub unsure: u64,
    /// Records that no daemon has got.
    pub unsent: u64,
    /// Why the latest refused record was refused; empty if none was.
    pub reason: String,
}

/// One thread's connection to the successive daemons of one directory.
pub struct LastingClient {
    dir: PathBuf,
    options: LastingOptions,
    /// The directory's UUID and limits. A different directory at the same path gets none of its records.
    welcome: Welcome,
    /// The definitions, for the next daemon.
    documents: Vec<(String, Vec<(SourceId, String)>)>,
    sources: BTreeMap<SourceId, Defined>,
    link: Link,
    kept: Kept,
    /// The counts of this connection.
    confirmed: Counts,
    /// Rows that were never pushed, but that this connection's counts have as refused.
    noted: u64,
    /// The counts of the earlier connections.
    before: Counts,
    reason: String,
    /// Why the latest connection ended.
    why: String,
    /// How many daemons took over from another one.
    successors: u64,
}

struct Defined {
    name: String,
    time: TimeKind,
    /// Everything that was pushed before is acknowledged.
    since: loom_engine::Timestamp,
    unsure: u64,
    /// Unsure records that are not in a ledger yet, and their times.
    unreported: Option<(u64, TimeRange)>,
}

/// The connection to a daemon, or the time without one.
enum Link {
    To(Client),
    Gone(Absence),
}

impl LastingClient {
    /// Connects to the daemon that runs on `dir`, and fails at once if there is none.
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

    /// The first daemon's answer to the hello. It has its limits and the directory's UUID.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Defines every `[[source]]` of a TOML document, as [`Client::define`] does, for this daemon and each one that follows.
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

    /// Hands over a batch of payloads of a source that this client defined, in the shapes of [`Client::push_batch`]. A batch that ends with half a
    /// payload is refused as a whole. If the call fails because no daemon runs, the batch waits for the next one, behind earlier batches.
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

    /// Sends the content of the buffer, without waiting until the daemon takes it.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.ask(Client::flush)
    }

    /// Syncs if that is due. A client that pushes seldom calls this regularly, so that few records are unsure if the daemon is killed.
    pub fn tick(&mut self) -> Result<(), ClientError> {
        if self.kept.bytes() >= KEPT_BYTES_MAX || self.kept.age() >= KEPT_TIME_MAX {
            self.acknowledge(Depth::Configured)?;
        }
        Ok(())
    }

    /// Returns when everything that was pushed before is visible to queries or unsure.
    pub fn sync(&mut self) -> Result<Outcome, ClientError> {
        self.acknowledge(Depth::Configured)?;
        Ok(self.outcome())
    }

    /// Returns when everything that was pushed before is durable or unsure.
    pub fn sync_durable(&mut self) -> Result<Outcome, ClientError> {
        self.acknowledge(Depth::Durable)?;
        Ok(self.outcome())
    }

    /// Reports refused rows to the ledger, as [`Client::report_refused`] does.
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

    /// Reports lost records to the ledger, as [`Client::report_lost`] does.
    pub fn report_lost(
        &mut self,
        cause: LostCause,
        source: &str,
        records: u64,
        span: TimeRange,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.ask(|client| client.report_lost(cause, source, records, span, reason))
    }

    /// The result that is known now.
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

    /// The records that killed daemons may have stored or not, by the names of their sources.
    pub fn unsure(&self) -> impl Iterator<Item = (&str, u64)> {
        let unsure = self.sources.values().filter(|source| source.unsure > 0);
        unsure.map(|source| (source.name.as_str(), source.unsure))
    }

    /// How many daemons took over from another one, and why the latest connection ended; empty if none has ended.
    pub fn successors(&self) -> (u64, &str) {
        (self.successors, &self.why)
    }

    /// Sends everything that is kept, then asks the daemon, or the next one if it ends meanwhile.
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

    /// Returns when everything has been sent to a daemon.
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

    /// Applies a daemon's counts for this connection: it counts the oldest records.
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

    /// The daemon is gone: its goodbye acknowledges the records that it took, or they are unsure.
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

    /// Waits until a daemon runs, with increasing pauses.
    fn find_daemon(&mut self) -> Result<(), ClientError> {
        while let Link::Gone(absence) = &mut self.link {
            absence.sleep_until_look_or(&self.options.stop);
            absence.looked_in_vain();
            let is_over = absence.is_longer_than(self.options.patience);
            let is_stopped = self.options.stop.load(Ordering::Relaxed);
            match define_at_next(|define| self.connect_next(define)) {
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

    fn connect_next(&mut self, define: Define) -> Result<Client, ClientError> {
        let client = connect(&self.dir, &self.options.name)?;
        if client.welcome().uuid != self.welcome.uuid {
            return Err(ClientError::Replaced(self.dir.clone()));
        }
        for (toml, before) in &self.documents {
            if define(&client, toml)? != *before {
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
    /// The daemon that got the batch was killed.
    fn lose(&mut self, batch: &Batch) {
        let own = match self.time {
            TimeKind::Own => batch.own_times(),
            TimeKind::Arrival => None,
        };
        let span = own.unwrap_or_else(|| with_slack(self.since));
        let (records, span) = self
            .unreported
            .map_or((0, span), |(records, before)| (records, hull(before, span)));
        self.unreported = Some((records + batch.records, span));
        self.unsure += batch.records;
    }

    fn report(&mut self, client: &Client) -> Result<(), ClientError> {
        if let Some((records, span)) = self.unreported {
            let why = "a daemon was killed while it stored them; the log may have some";
            client.report_lost(LostCause::DaemonKilled, &self.name, records, span, why)?;
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
    ClientError::Protocol("its counts differ from the pushed records".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::absence::tests::{check_60_seconds, client_of, of_59_seconds};
    use super::*;

    #[test]
    fn a_sync_fails_by_default_after_60_seconds_without_a_daemon() {
        let mut client = client_of(LastingClient::connect).unwrap();
        let begun = std::time::Instant::now();
        client.link = Link::Gone(of_59_seconds());
        match client.sync() {
            Err(ClientError::NoSuccessor { patience, .. }) => check_60_seconds(patience, begun),
            other => panic!("{other:?}"),
        }
    }
}
