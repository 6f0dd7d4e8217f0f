//! Moves records from the kernel's ring to the daemon: one thread empties the ring, at real-time priority if permitted, and another passes the
//! batches on.
//!
//! The first thread waits for the daemon only when 256 MiB are queued, so the kernel loses records only if the daemon is that far behind. Both
//! threads move the records of a tick together: each hand-over wakes a thread, which costs as much as many records, and takes time from the recorded
//! program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use flume::{Sender, bounded};
use loom_engine::schema::SourceDef;
use loom_probes::{BATCH_BYTES, Clock, Counts, Probe, ProbeError, Selection, TICK, real_time};

use super::Capture;
use super::kernel_losses::{KernelLoss, KernelLosses, SAMPLED};
use super::outlet::Outlet;
use super::tally::{Ending, Tally};
use crate::protocol::Shape;
use crate::{counted, quoted, wall_clock};

/// Batches of `BATCH_BYTES` that wait to be stored: 256 MiB.
const QUEUE_BATCHES: usize = 1024;
/// The interval at which the clock is read again and losses are reported.
const SECOND: Duration = Duration::from_secs(1);

enum Drained {
    Batch(Vec<u8>),
    Lost(KernelLoss),
}

/// The state after the programs are detached.
struct Last {
    probe: Probe,
    counts: Counts,
    why: Option<&'static str>,
    clock_error_ns: u64,
    real_time: std::io::Result<()>,
}

/// A capture from the kernel: attached programs, and the source whose payloads they write.
pub(super) struct Probed {
    probe: Probe,
    source: SourceDef,
    /// The columns of the suggested query, which orders by the second.
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

    /// Records until `stop` is set, or no more events can come. `convert` makes the payloads of a batch of the probe, which is empty once a second, for
    /// captures that act by the clock.
    pub(super) fn drain(
        self,
        outlet: &Outlet,
        stop: &AtomicBool,
        mut convert: impl FnMut(Vec<u8>) -> anyhow::Result<Vec<u8>>,
    ) -> anyhow::Result<(Ending, Probe)> {
        let kind = &self.kind;
        let (sender, queue) = bounded(QUEUE_BATCHES);
        let tally = Arc::clone(outlet.tally());
        let (last, handed_over) = thread::scope(|scope| {
            let drainer = thread::Builder::new()
                .name("loom-drainer".to_owned())
                .spawn_scoped(scope, move || {
                    empty(self.probe, self.losses, kind, &sender, &tally, stop)
                })
                .context("cannot start a thread")?;
            let handed_over = queue.iter().try_for_each(|drained| match drained {
                Drained::Batch(batch) => {
                    let payloads = convert(batch)?;
                    match payloads.is_empty() {
                        true => Ok(()),
                        false => outlet.push_at_once(kind.shape, &payloads),
                    }
                }
                Drained::Lost(KernelLoss { records, span, why }) => match why {
                    SAMPLED => outlet.sampled(records, span, why),
                    _ => outlet.lost(records, span, why),
                },
            });
            // The closed queue ends the drainer.
            drop(queue);
            let last = drainer
                .join()
                .map_err(|_| anyhow!("the thread that empties the ring has panicked"))?;
            anyhow::Ok((last, handed_over))
        })?;
        handed_over?;
        let mut last = last?;
        let under_way = (kind.under_way)(&mut last.probe)?;
        Ok((ending(&last, kind, under_way), last.probe))
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

    fn least(&self) -> Option<Duration> {
        self.kind.least
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.losses = KernelLosses::new(wall_clock());
        Ok(self.probe.arm()?)
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let (ending, _) = self.drain(outlet, stop, Ok)?;
        Ok(ending)
    }
}

/// The differences between captures from the kernel.
pub(super) struct Kind {
    pub(super) shape: Shape,
    /// The names of an event and of its end.
    pub(super) event: &'static str,
    pub(super) end: &'static str,
    /// The reason why ends have no beginning, for the note about them.
    pub(super) unpaired: &'static str,
    /// Counts the events that had begun when the programs were detached.
    pub(super) under_way: fn(&mut Probe) -> Result<u64, ProbeError>,
    /// The reason why no more events can come.
    pub(super) is_over: fn(&mut Probe) -> Result<Option<&'static str>, ProbeError>,
    /// The least time of an event that is recorded, if events take time.
    pub(super) least: Option<Duration>,
}

/// Finds out whether the selected processes have ended, if nothing else is recorded.
pub(super) fn is_over(
    selection: &Selection,
) -> fn(&mut Probe) -> Result<Option<&'static str>, ProbeError> {
    if !selection.ends() {
        return |_| Ok(None);
    }
    |probe| {
        Ok(Selection::is_over(probe)?
            .then_some("the processes that were to be recorded have ended"))
    }
}

/// Empties the ring until `stop` is set or the queue is closed, and then drains the rest.
fn empty(
    mut probe: Probe,
    mut losses: KernelLosses,
    kind: &Kind,
    queue: &Sender<Drained>,
    tally: &Tally,
    stop: &AtomicBool,
) -> anyhow::Result<Last> {
    let real_time = real_time();
    let mut clock = Clock::take();
    let mut clock_error_ns = clock.error_ns;
    let mut looked: Option<Instant> = None;
    let mut why = None;
    while !stop.load(Ordering::Relaxed) && why.is_none() {
        if looked.is_none_or(|at| at.elapsed() >= SECOND) {
            looked = Some(Instant::now());
            clock = Clock::take();
            clock_error_ns = clock_error_ns.max(clock.error_ns);
            probe.record_from(tally.least())?;
            tally.set_program_time(probe.run_time()?);
            let before = wall_clock();
            let counts = probe.counts()?;
            let lost = losses.look(&counts, before, wall_clock());
            let lost = lost.into_iter().map(Drained::Lost);
            let mut clocked = lost.chain([Drained::Batch(Vec::new())]);
            let sent = clocked.try_for_each(|sent| queue.send(sent));
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
    // The receiver reports its own error.
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
    if last.counts.left > 0 {
        let events = counted(last.counts.left, kind.event);
        notes.push(format!(
            "{events} that were left without an end, as by longjmp or the end of a thread; not a loss"
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

    /// Checks that the layout of the source has the length of the programs' payloads.
    pub fn check_layout(source: &SourceDef, payload_bytes: u16) {
        source.validate().unwrap();
        let layout = Layout::new(source.time, &source.fields).unwrap();
        layout
            .validate(&vec![0; usize::from(payload_bytes)])
            .unwrap();
    }
}
