//! Records of the kernel on their way: one thread empties the ring, at real-time priority where that is permitted; another hands the
//! batches to the daemon.
//!
//! The first never waits for the daemon until 256 MiB are queued, so the ring runs full, and the kernel loses records, only when the daemon
//! is that far behind. Both move what a tick has brought in one piece: each hand-over wakes a thread, which costs as much as many records do,
//! and takes it from the program that is recorded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use flume::{Sender, bounded};
use loom_engine::schema::SourceDef;
use loom_probes::{BATCH_BYTES, Clock, Counts, Probe, ProbeError, TICK, real_time};

use super::Capture;
use super::kernel_losses::{KernelLoss, KernelLosses};
use super::outlet::Outlet;
use super::tally::Ending;
use crate::{counted, quoted, wall_clock};

/// Batches of `BATCH_BYTES` that wait to be stored: 256 MiB.
const QUEUE_BATCHES: usize = 1024;
/// How often the clock is taken again, and losses are reported.
const SECOND: Duration = Duration::from_secs(1);

enum Drained {
    Batch(Vec<u8>),
    Lost(KernelLoss),
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
    probe: Probe,
    source: SourceDef,
    /// The columns of a query to continue with; the second says which rows come first.
    columns: &'static str,
    kind: Kind,
    losses: KernelLosses,
}

impl Probed {
    pub(super) fn new(
        probe: Probe,
        source: SourceDef,
        columns: &'static str,
        kind: Kind,
    ) -> Probed {
        Probed {
            probe,
            source,
            columns,
            kind,
            losses: KernelLosses::new(wall_clock()),
        }
    }
}

impl Capture for Probed {
    fn source(&self) -> &SourceDef {
        &self.source
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT {} FROM loom_scan({dir}, {}, last := INTERVAL 10 SECOND) GROUP BY ALL ORDER BY 2 DESC",
            self.columns,
            quoted(&self.source.name)
        )
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.losses = KernelLosses::new(wall_clock());
        Ok(self.probe.arm()?)
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        drain(self.probe, self.losses, &self.kind, outlet, stop)
    }
}

/// What differs between captures from the kernel.
pub(super) struct Kind {
    pub(super) payload_bytes: u16,
    /// What an event is called, and its end.
    pub(super) event: &'static str,
    pub(super) end: &'static str,
    /// Why ends have no beginning, after their number.
    pub(super) unpaired: &'static str,
    /// How many events had begun when the programs were detached.
    pub(super) under_way: fn(&mut Probe) -> Result<u64, ProbeError>,
    /// Why no more events can come, if so.
    pub(super) is_over: fn(&mut Probe) -> Result<Option<&'static str>, ProbeError>,
}

/// Records until `stop` is set, or no more events can come.
fn drain(
    probe: Probe,
    losses: KernelLosses,
    kind: &Kind,
    outlet: &Outlet,
    stop: &AtomicBool,
) -> anyhow::Result<Ending> {
    let (sender, queue) = bounded(QUEUE_BATCHES);
    let (last, handed_over) = thread::scope(|scope| {
        let drainer = thread::Builder::new()
            .name("loom-drainer".to_owned())
            .spawn_scoped(scope, move || empty(probe, losses, kind, &sender, stop))
            .context("cannot start a thread")?;
        let handed_over = queue.iter().try_for_each(|drained| match drained {
            Drained::Batch(batch) => outlet.push_at_once(kind.payload_bytes, &batch),
            Drained::Lost(loss) => {
                outlet.lost(loss.records, loss.span, "the kernel had no room for them")
            }
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
    Ok(ending(&last, kind, under_way))
}

/// Empties the ring until `stop` is set or nobody takes more, and then what is left.
fn empty(
    mut probe: Probe,
    mut losses: KernelLosses,
    kind: &Kind,
    queue: &Sender<Drained>,
    stop: &AtomicBool,
) -> anyhow::Result<Last> {
    let real_time = real_time();
    let mut clock = Clock::take();
    let mut clock_error_ns = clock.error_ns;
    let mut looked = Instant::now();
    let mut why = None;
    while !stop.load(Ordering::Relaxed) && why.is_none() {
        if looked.elapsed() >= SECOND {
            looked = Instant::now();
            clock = Clock::take();
            clock_error_ns = clock_error_ns.max(clock.error_ns);
            let before = wall_clock();
            let counts = probe.counts()?;
            let lost = losses.look(&counts, before, wall_clock());
            let sent = (lost.into_iter()).try_for_each(|loss| queue.send(Drained::Lost(loss)));
            if sent.is_err() {
                break;
            }
            why = (kind.is_over)(&mut probe)?;
        }
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        let is_empty = probe.drain(clock, &mut batch);
        if !batch.is_empty() && queue.send(Drained::Batch(batch)).is_err() {
            break;
        }
        if is_empty {
            thread::sleep(TICK);
        }
    }
    let mut rest = Vec::new();
    let before = wall_clock();
    let counts = probe.disarm(clock, &mut rest)?;
    // A queue that is closed has an error of its own.
    let _ = queue.send(Drained::Batch(rest));
    for loss in losses.look(&counts, before, wall_clock()) {
        let _ = queue.send(Drained::Lost(loss));
    }
    Ok(Last {
        probe,
        counts,
        why,
        clock_error_ns,
        real_time,
    })
}

fn ending(last: &Last, kind: &Kind, under_way: u64) -> Ending {
    let mut notes = vec![format!("its times are exact to {} ns", last.clock_error_ns)];
    if let Err(error) = &last.real_time {
        notes.push(format!(
            "the ring was emptied at ordinary priority ({error}); with CAP_SYS_NICE busy processors cost no records"
        ));
    }
    if last.counts.unpaired > 0 {
        let ends = counted(last.counts.unpaired, kind.end);
        notes.push(format!(
            "{ends} without a beginning: {}; not a loss",
            kind.unpaired
        ));
    }
    if under_way > 0 {
        let events = counted(under_way, kind.event);
        notes.push(format!(
            "{events} without an end when the recording ended; not a loss"
        ));
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
