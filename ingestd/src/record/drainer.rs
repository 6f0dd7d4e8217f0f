//! Records of the kernel on their way: one thread empties the ring, at real-time priority where that is permitted; another hands the
//! batches to the daemon.
//!
//! The first never waits for the daemon until 256 MiB are queued, so the ring runs full, and the kernel loses records, only when the daemon
//! is that far behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use crossbeam_channel::{Sender, bounded};
use loom_engine::schema::SourceDef;
use loom_probes::{Clock, Counts, Probe, ProbeError, real_time};

use super::Capture;
use super::outlet::Outlet;
use super::tally::Ending;
use crate::counted;
use crate::protocol::Shape;

const BATCH_BYTES: usize = 64 << 10;
const QUEUE_BATCHES: usize = 4096;
/// How often the ring is emptied.
const TICK: Duration = Duration::from_millis(1);
/// How often the clock is taken again, and losses are reported.
const SECOND: Duration = Duration::from_secs(1);

enum Drained {
    Batch(Vec<u8>),
    /// So many more records were lost in the kernel.
    Lost(u64),
}

/// What is known when the programs are detached.
struct Last {
    probe: Probe,
    counts: Counts,
    why: Option<&'static str>,
    clock_error_ns: u64,
    real_time: std::io::Result<()>,
}

/// A capture from the kernel: programs that are attached, and the source whose payloads they write.
pub(super) struct Probed {
    pub(super) probe: Probe,
    pub(super) source: SourceDef,
    /// The columns of a query to continue with; the second says which rows come first.
    pub(super) columns: &'static str,
    pub(super) kind: Kind,
}

impl Capture for Probed {
    fn source(&self) -> &SourceDef {
        &self.source
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT {} FROM loom_scan('{dir}', '{}', last := INTERVAL 10 SECOND) GROUP BY ALL ORDER BY 2 DESC",
            self.columns, self.source.name
        )
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        drain(self.probe, &self.kind, outlet, stop)
    }
}

/// What differs between captures from the kernel.
pub(super) struct Kind {
    pub(super) payload_bytes: u16,
    /// How many events had begun when the programs were detached.
    pub(super) under_way: fn(&mut Probe) -> Result<u64, ProbeError>,
    /// Why no more events can come, if so.
    pub(super) is_over: fn(&mut Probe) -> Result<Option<&'static str>, ProbeError>,
}

/// Records until `stop` is set, or no more events can come.
fn drain(probe: Probe, kind: &Kind, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
    let shape = Shape::Fixed {
        record_bytes: kind.payload_bytes,
    };
    let (sender, queue) = bounded(QUEUE_BATCHES);
    let (last, handed_over) = thread::scope(|scope| {
        let drainer = thread::Builder::new()
            .name("loom-drainer".to_owned())
            .spawn_scoped(scope, move || empty(probe, kind, &sender, stop))
            .context("cannot start a thread")?;
        let handed_over = queue.iter().try_for_each(|drained| match drained {
            Drained::Batch(batch) => {
                let records = batch.len() / usize::from(kind.payload_bytes);
                outlet.push(shape, &batch, records as u64)
            }
            Drained::Lost(records) => outlet.lost(records, "the kernel had no room for them"),
        });
        // The drainer learns from the closed queue that nobody takes more.
        drop(queue);
        let last = drainer
            .join()
            .map_err(|_| anyhow!("the thread that empties the ring has panicked"))?;
        anyhow::Ok((last, handed_over))
    })?;
    handed_over?;
    let mut last = last?;
    let under_way = (kind.under_way)(&mut last.probe)?;
    Ok(ending(&last, under_way))
}

/// Empties the ring until `stop` is set or nobody takes more, and then what is left.
fn empty(
    mut probe: Probe,
    kind: &Kind,
    queue: &Sender<Drained>,
    stop: &AtomicBool,
) -> anyhow::Result<Last> {
    let real_time = real_time();
    let mut clock = Clock::take();
    let mut clock_error_ns = clock.error_ns;
    let mut looked = Instant::now();
    let mut lost = 0;
    let mut why = None;
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    probe.arm()?;
    while !stop.load(Ordering::Relaxed) && why.is_none() {
        if looked.elapsed() >= SECOND {
            looked = Instant::now();
            clock = Clock::take();
            clock_error_ns = clock_error_ns.max(clock.error_ns);
            let counted = probe.counts()?.lost();
            if counted > lost && queue.send(Drained::Lost(counted - lost)).is_err() {
                break;
            }
            lost = counted;
            why = (kind.is_over)(&mut probe)?;
        }
        if probe.drain(clock, &mut batch, BATCH_BYTES) == 0 {
            thread::sleep(TICK);
            continue;
        }
        let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_BYTES));
        if queue.send(Drained::Batch(full)).is_err() {
            break;
        }
    }
    let mut rest = Vec::new();
    let counts = probe.disarm(clock, &mut rest)?;
    // A queue that is closed has an error of its own.
    let _ = queue.send(Drained::Batch(rest));
    let _ = queue.send(Drained::Lost(counts.lost() - lost));
    Ok(Last {
        probe,
        counts,
        why,
        clock_error_ns,
        real_time,
    })
}

fn ending(last: &Last, under_way: u64) -> Ending {
    let mut notes = vec![format!("its times are exact to {} ns", last.clock_error_ns)];
    if let Err(error) = &last.real_time {
        notes.push(format!(
            "the ring was emptied at ordinary priority ({error}); with CAP_SYS_NICE busy processors cost no records"
        ));
    }
    if last.counts.unpaired > 0 {
        notes.push(format!(
            "{} ended whose beginning was not seen",
            counted(last.counts.unpaired, "event")
        ));
    }
    if under_way > 0 {
        notes.push(format!("{} had not ended", counted(under_way, "event")));
    }
    Ending {
        why: last.why.map(str::to_owned),
        notes,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use loom_engine::schema::{Layout, SourceDef};

    /// The programs write payloads of the layout that the source declares.
    pub fn check_layout(source: &SourceDef, payload_bytes: u16) {
        source.validate().unwrap();
        let layout = Layout::new(source.time, &source.fields).unwrap();
        layout
            .validate(&vec![0; usize::from(payload_bytes)])
            .unwrap();
    }
}
