//! A client that keeps a list of the records it pushed, and of the answers it got.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::format::PendingLoss;
use crate::ingest::{Limits, WhenFull, Writer, WriterOptions};
use crate::log::tests::simulated::{Disk, Marks, loom, shared_memory};
use crate::log::{Durability, LogOptions};
use crate::schema::{IndexDef, LossReason, Source, SourceDef, parse_sources};
use crate::types::{Address, SourceId};

pub const CHUNK: u64 = 4 << 10;
pub const SEGMENT: u64 = 128 << 10;
/// The time after which a client gives up on a disk that takes nothing. The flusher tries again several times in it.
const PATIENCE: Duration = Duration::from_millis(300);

const SOURCES: &str = r#"
[[source]]
name = "number"
[[source.field]]
name = "ordinal"
type = "u64"
[[source.field]]
name = "value"
type = "u64"
[[source.field]]
name = "rest"
type = "bytes"
[[source.index]]
name = "value"
value = "value"

[[source]]
name = "event"
time = "own"
[[source.field]]
name = "ordinal"
type = "u64"

[[source]]
name = "once"
[[source.field]]
name = "ordinal"
type = "u64"
"#;

/// A record of the list; its place there is its ordinal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub source: SourceId,
    pub address: Address,
}

/// Most records are numbers; now and then one is an event.
pub fn is_event(ordinal: u64) -> bool {
    ordinal % 61 == 17
}

/// The first records are of a source that gets no others, and that is forgotten with them.
fn is_once(ordinal: u64) -> bool {
    ordinal < 3
}

pub fn value(ordinal: u64) -> u64 {
    ordinal.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54
}

pub fn payload(ordinal: u64) -> Vec<u8> {
    if is_once(ordinal) {
        return ordinal.to_le_bytes().to_vec();
    }
    if is_event(ordinal) {
        let own = 1_000_000 - ordinal as i64;
        return [own.to_le_bytes(), ordinal.to_le_bytes()].concat();
    }
    // Two in three of these payloads do not shrink as columns.
    let mixed = |nth: usize| {
        let number = (ordinal * 601 + nth as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (number ^ number >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 56
    };
    let byte = |nth| match ordinal % 3 {
        0 => ordinal as u8 | 1,
        _ => mixed(nth) as u8 | 1,
    };
    let rest: Vec<u8> = (0..300 + value(ordinal) as usize / 4).map(byte).collect();
    let mut payload = [ordinal.to_le_bytes(), value(ordinal).to_le_bytes()].concat();
    payload.extend((rest.len() as u16).to_le_bytes());
    payload.extend(rest);
    payload
}

pub fn options(durability: Durability) -> WriterOptions {
    WriterOptions {
        log: LogOptions {
            chunk_bytes: CHUNK as u32,
            block_bytes: 64 << 10,
            segment_bytes: [SEGMENT, 64 << 10, 64 << 10].into(),
            staging: Some(shared_memory()),
            durability,
            encoders: 1,
            group: None,
        },
        accept_clock: false,
        when_full: WhenFull::Refuse,
    }
}

/// The same with two encoders, and with blocks of two units, so that both get one.
pub fn options_of_two(durability: Durability) -> WriterOptions {
    let mut options = options(durability);
    options.log.encoders = 2;
    options.log.block_bytes *= 2;
    options
}

pub struct Client {
    disk: Disk,
    options: WriterOptions,
    pub writer: Option<Writer>,
    pub sent: Vec<Sent>,
    pub marks: Arc<Marks>,
    ids: [SourceId; 3],
}

impl Client {
    /// Opens the directory on the disk and goes on after `sent`.
    pub fn start(disk: &Disk, options: &WriterOptions, sent: Vec<Sent>) -> Result<Client> {
        let mut client = Client {
            disk: disk.clone(),
            options: options.clone(),
            writer: None,
            sent,
            marks: Arc::default(),
            ids: [SourceId(0); 3],
        };
        client.open()?;
        Ok(client)
    }

    /// As `start` on a new disk that remembers every operation from the first one on.
    pub fn remembered(disk: &Disk, options: &WriterOptions) -> Result<Client> {
        let marks = Arc::default();
        disk.remember(&marks);
        let mut client = Client::start(disk, options, Vec::new())?;
        client.marks = marks;
        Ok(client)
    }

    /// Opens the directory again after `close`.
    pub fn open(&mut self) -> Result<()> {
        let mut writer = Writer::open_with(self.disk.storage(), &loom(), self.options.clone())?;
        let defs: Vec<SourceDef> = parse_sources(SOURCES).unwrap();
        for (id, def) in self.ids.iter_mut().zip(&defs) {
            *id = writer.define_source(def)?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    pub fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().unwrap()
    }

    pub fn push(&mut self, records: u64) -> Result<()> {
        for _ in 0..records {
            let ordinal = self.sent.len() as u64;
            let [numbers, events, once] = self.ids;
            let source = match ordinal {
                _ if is_once(ordinal) => once,
                _ if is_event(ordinal) => events,
                _ => numbers,
            };
            let address = self.push_one(source, &payload(ordinal))?;
            self.sent.push(Sent { source, address });
        }
        Ok(())
    }

    /// Waits for room like a daemon that reports a full disk to its client: a disk that takes nothing for a while ends the wait.
    fn push_one(&mut self, source: SourceId, payload: &[u8]) -> Result<Address> {
        let since = Instant::now();
        loop {
            let writer = self.writer();
            if let Some(address) = writer.try_push(source, payload)? {
                return Ok(address);
            }
            if !writer.wait_for_room()?
                && since.elapsed() > PATIENCE
                && let Some(reason) = writer.trouble()
            {
                return Err(Error::Waiting(reason));
            }
        }
    }

    /// Counts as many lost records as were pushed, as a daemon does before it answers (G1).
    fn lose(&mut self) {
        let sent = self.sent.len() as u64;
        let writer = self.writer();
        let known = writer.pending_losses().iter().filter_map(|row| row.records);
        let lost = known.max().map_or(sent, |known| known.max(sent));
        writer.set_pending_losses(vec![PendingLoss {
            reason: LossReason::Overload as u8,
            records: Some(lost),
            ..PendingLoss::UNKNOWN
        }]);
        self.marks.lost.store(lost, Ordering::Release);
    }

    /// Figure 9's `sync`: earlier records are visible and survive this process (G1).
    pub fn sync(&mut self) -> Result<()> {
        self.lose();
        self.writer().sync()?;
        let sent = self.sent.len() as u64;
        self.marks.published.store(sent, Ordering::Release);
        if self.options.log.durability == Durability::Batch {
            self.marks.durable.store(sent, Ordering::Release);
        }
        Ok(())
    }

    /// After this, earlier records survive the host (G3).
    pub fn sync_durable(&mut self) -> Result<()> {
        self.writer().sync_durable()?;
        let sent = self.sent.len() as u64;
        self.marks.published.store(sent, Ordering::Release);
        self.marks.durable.store(sent, Ordering::Release);
        Ok(())
    }

    pub fn define_index(&mut self, name: &str) -> Result<()> {
        let def = format!(
            "name = '{name}'\nvalue = 'value'\nwhere = 'value >= 512'\nbins = {{ from = 512, step = 64, count = 8 }}"
        );
        let def: IndexDef = toml::from_str(&def).unwrap();
        let [numbers, ..] = self.ids;
        self.writer().define_index(numbers, &def)?;
        Ok(())
    }

    /// Evicts the oldest segment. From now on, records are owed only from there on.
    pub fn evict(&mut self) -> Result<u64> {
        let limits = Limits {
            disk_is_full: true,
            ..Limits::default()
        };
        // Marked before the eviction, so that at no boundary more is removed than this.
        let begin = self.marks.begin.load(Ordering::Acquire) + SEGMENT;
        self.marks.begin.store(begin, Ordering::Release);
        let evicted = self.writer().evict(&limits)?.segments;
        if evicted == 0 {
            self.marks.begin.store(begin - SEGMENT, Ordering::Release);
        }
        Ok(evicted)
    }

    /// Rewrites the catalog. The source of the first records has none left once they are evicted.
    pub fn forget(&mut self) -> Result<()> {
        let is_once = |source: &Source| source.name == "once";
        self.writer().rewrite_catalog(is_once)
    }

    pub fn close(&mut self) -> Result<()> {
        self.writer.take().unwrap().close()?;
        let sent = self.sent.len() as u64;
        self.marks.published.store(sent, Ordering::Release);
        self.marks.durable.store(sent, Ordering::Release);
        Ok(())
    }
}
