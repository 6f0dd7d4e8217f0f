//! Copies the records of one source into a file, in log order. Exports, pins and archives use it.
//!
//! A chunk that does not verify, or that retention removed meanwhile, is a gap, which the taker gets in its place. A read that the system refuses is
//! tried again, and then ends the copy: a later one may find the records, so it is no gap.

use std::fmt;
use std::io::ErrorKind;
use std::mem::discriminant;
use std::time::Duration;

use loom_engine::query::{Ask, Batch, ChunkReader, Poll, Scan, ScanSpec, Snapshot};
use loom_engine::{Address, ChunkNo, Error};

/// A chunk is read so often, with a pause in between.
const READS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// Gaps that are listed one by one.
const TOLD_MAX: usize = 8;

/// Receives the records.
pub(super) trait Taker {
    /// The rows of the next chunk.
    fn take(&mut self, rows: Batch<'_>) -> anyhow::Result<()>;
    /// Notes a gap before the next rows.
    fn miss(&mut self, gap: Gap);
}

/// Addresses whose records cannot be copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    pub from: Address,
    pub to: Address,
    pub cause: Cause,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Retention,
    /// The error, with the file.
    Damage(String),
}

/// Gaps that are noted together: neighbours of one kind become one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    pub fn add(&mut self, gap: Gap) {
        let is_next = |last: &Gap| {
            gap.from <= last.to && discriminant(&last.cause) == discriminant(&gap.cause)
        };
        match self.0.last_mut() {
            Some(last) if is_next(last) => last.to = last.to.max(gap.to),
            _ => self.0.push(gap),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Joins the gaps of several sources, which meet the same damage.
impl FromIterator<Gap> for Gaps {
    fn from_iter<I: IntoIterator<Item = Gap>>(gaps: I) -> Gaps {
        let mut all: Vec<Gap> = gaps.into_iter().collect();
        all.sort_by_key(|gap| gap.from);
        let mut together = Gaps::default();
        all.into_iter().for_each(|gap| together.add(gap));
        together
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, gap) in self.0.iter().take(TOLD_MAX).enumerate() {
            let and = if nth == 0 { "" } else { "; " };
            write!(f, "{and}{gap}")?;
        }
        match self.0.len().saturating_sub(TOLD_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more gaps"),
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { from, to, cause } = self;
        match cause {
            Cause::Retention => write!(f, "retention removed addresses {from} to {to}"),
            Cause::Damage(what) => write!(f, "addresses {from} to {to} cannot be read: {what}"),
        }
    }
}

/// Gives the taker the records of the scan up to the end of the snapshot.
///
/// # Errors
/// A read that failed each time, [`Error::Interrupted`], and the errors of the taker.
pub(super) fn copy(
    snapshot: &Snapshot,
    spec: ScanSpec,
    poll: &Poll<'_>,
    taker: &mut impl Taker,
) -> anyhow::Result<()> {
    let end = Address(snapshot.position());
    let (mut snapshot, mut spec) = (snapshot.clone(), spec);
    loop {
        let Some((reached, evicted)) = pass(&snapshot, &spec, poll, taker)? else {
            return Ok(());
        };
        let before = snapshot.begin();
        let begin = match snapshot.directory().snapshot_at(end.0) {
            Ok(later) => {
                snapshot = later;
                snapshot.begin()
            }
            Err(Error::Evicted { .. }) => end,
            Err(error) => return Err(error.into()),
        };
        if begin <= before {
            return Err(evicted.into());
        }
        if begin > reached {
            taker.miss(Gap {
                from: reached,
                to: begin.min(end),
                cause: Cause::Retention,
            });
        }
        if begin >= end {
            return Ok(());
        }
        spec.after = begin.max(reached);
    }
}

/// Copies until everything is copied, or retention removed the next records; then it returns the end of the copied part, and the error.
fn pass(
    snapshot: &Snapshot,
    spec: &ScanSpec,
    poll: &Poll<'_>,
    taker: &mut impl Taker,
) -> anyhow::Result<Option<(Address, Error)>> {
    let mut reached = spec.after.max(snapshot.begin());
    let scan = Scan::new(snapshot, spec.clone())?;
    let mut reader = scan.reader(Ask {
        fields: (0..scan.source().fields.len()).collect(),
        payloads: scan.source().fields.is_empty(),
        times: true,
        addresses: true,
        ..Ask::default()
    });
    loop {
        let chunk = match scan.next(poll) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(None),
            Err(error @ Error::Evicted { .. }) => return Ok(Some((reached, error))),
            Err(error) => return Err(error.into()),
        };
        let base = chunk.address(snapshot.chunk_bytes());
        let next = base + u64::from(snapshot.chunk_bytes());
        match read(snapshot, &mut reader, chunk, poll, taker)? {
            Read::Taken => {}
            Read::Evicted(error) => return Ok(Some((reached, error))),
            Read::Damaged(what) => taker.miss(Gap {
                from: base.max(spec.after),
                to: next.min(Address(snapshot.position())),
                cause: Cause::Damage(what),
            }),
        }
        reached = next;
    }
}

enum Read {
    Taken,
    Evicted(Error),
    Damaged(String),
}

fn read(
    snapshot: &Snapshot,
    reader: &mut ChunkReader,
    chunk: ChunkNo,
    poll: &Poll<'_>,
    taker: &mut impl Taker,
) -> anyhow::Result<Read> {
    let mut reads = 1;
    loop {
        match reader.read(chunk) {
            Ok(rows) => {
                taker.take(rows)?;
                return Ok(Read::Taken);
            }
            Err(error @ Error::Evicted { .. }) => return Ok(Read::Evicted(error)),
            Err(error) if error.is_corruption() || is_gone(snapshot, &error) => {
                return Ok(Read::Damaged(error.to_string()));
            }
            Err(error) if reads == READS_MAX || !error.is_damage() => return Err(error.into()),
            Err(_) => {}
        }
        reads += 1;
        std::thread::sleep(PAUSE);
        poll.check()?;
    }
}

/// True if a file of the log is missing from a directory that is there.
fn is_gone(snapshot: &Snapshot, error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound)
        && snapshot.directory().is_in_place()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use loom_engine::ingest::{Limits, Writer};
    use loom_engine::query::{Directory, Predicate};
    use loom_engine::schema::SourceDef;

    use super::*;
    use crate::testing::small_writer;

    /// Takes a chunk, and has retention remove some segments before the next.
    struct Evicting {
        writer: Writer,
        segments: PathBuf,
        is_due: bool,
        taken: Vec<Address>,
        gaps: Vec<Gap>,
    }

    impl Taker for Evicting {
        fn take(&mut self, rows: Batch<'_>) -> anyhow::Result<()> {
            self.taken
                .extend(rows.addresses().iter().copied().map(Address));
            let limits = Limits {
                bytes_max: Some(0),
                ..Limits::default()
            };
            if std::mem::replace(&mut self.is_due, false) {
                let began = std::time::Instant::now();
                let mut segments = 0;
                while segments < 4 {
                    self.writer.tick()?;
                    segments += self.writer.evict(&limits)?.segments;
                    assert!(began.elapsed() < Duration::from_secs(60), "nothing went");
                }
                // The files are unlinked in the background, and remain readable until then.
                let is_gone = |first: u64| !self.segments.join(format!("{first:020}.0")).exists();
                while !(0..segments).all(|n| is_gone(n * (64 << 10))) {
                    assert!(
                        began.elapsed() < Duration::from_secs(60),
                        "nothing is unlinked"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        }

        fn miss(&mut self, gap: Gap) {
            self.gaps.push(gap);
        }
    }

    // case Rules: retention or damage under a pin
    #[test]
    fn what_retention_removes_meanwhile_is_a_gap_and_the_rest_is_copied() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut writer) = small_writer(place.path());
        let source = writer.define_source(&SourceDef::new("s")).unwrap();
        let pushed: Vec<Address> = (0..40_000_u64)
            .map(|n| writer.push(source, &n.to_le_bytes()).unwrap())
            .collect();
        writer.publish().unwrap();
        let directory = Directory::open(&dir).unwrap();
        let snapshot = directory.snapshot().unwrap();
        let spec = ScanSpec {
            source,
            after: Address::ZERO,
            exact: Predicate::All,
            prune: Predicate::All,
            index_filters: Vec::new(),
        };
        let mut taker = Evicting {
            writer,
            segments: dir.join("records"),
            is_due: true,
            taken: Vec::new(),
            gaps: Vec::new(),
        };
        copy(&snapshot, spec, &Poll::never(), &mut taker).unwrap();
        let [gap] = &taker.gaps[..] else {
            panic!("{:?}", taker.gaps)
        };
        // A segment that is open is read to its end.
        assert!(gap.from >= Address(4096) && gap.cause == Cause::Retention);
        assert!(gap.to >= Address(4 * (64 << 10)), "{gap}");
        let left = pushed.iter().filter(|at| **at < gap.from || **at >= gap.to);
        assert!(left.eq(taker.taken.iter()));
    }

    // case Rules: retention or damage under a pin
    #[test]
    fn damage_that_several_sources_meet_is_told_once() {
        let gap = |from, to, what: &str| Gap {
            from: Address(from),
            to: Address(to),
            cause: Cause::Damage(what.to_owned()),
        };
        let gaps: Gaps = [
            gap(30, 40, "b"),
            gap(0, 10, "a"),
            gap(10, 20, "a"),
            gap(0, 10, "a"),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            gaps.to_string(),
            "addresses 0 to 20 cannot be read: a; addresses 30 to 40 cannot be read: b"
        );
        let many: Gaps = (0..20).map(|n| gap(n * 20, n * 20 + 10, "x")).collect();
        assert!(many.to_string().ends_with("; and 12 more gaps"), "{many}");
    }
}
