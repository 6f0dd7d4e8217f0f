//! The peer of `ingestd record`: the same probes, drained by the same two threads, into files that are only appended to.
//!
//! One thread empties the ring at real-time priority, and another writes the batches, as in `ingestd::record`. So the difference between
//! the two is the part that Loom adds: the way to the daemon, summaries, indexes and live reads.

use std::fs::File;
use std::io::{Write, stdin};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use flume::{Sender, bounded};
use loom_probes::{
    BATCH_BYTES, Clock, Counts, Pagecache, Probe, Selection, Syscalls, TICK, number_of, real_time,
};
use serde_json::json;

/// The same as in `ingestd::record`.
const QUEUE_BATCHES: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Options {
    /// Folder for the files
    folder: PathBuf,
    #[arg(long = "pid")]
    pids: Vec<u32>,
    #[arg(long = "comm")]
    names: Vec<String>,
    #[arg(long = "syscall", value_parser = |name: &str| number_of(name).ok_or("not a system call"))]
    numbers: Vec<u16>,
    /// The events of the page cache too
    #[arg(long)]
    pagecache: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let filter = Syscalls {
        selection: Selection {
            pids: options.pids.clone(),
            names: options.names.clone(),
            ..Selection::default()
        },
        numbers: options.numbers.clone(),
        ..Syscalls::default()
    };
    let mut probes = vec![("syscall", filter.open()?)];
    if options.pagecache {
        probes.push(("pagecache", Pagecache::default().open()?));
    }
    let stop = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (name, mut probe) in probes {
            let file = create(&options.folder, name)?;
            probe.arm()?;
            let stop = &stop;
            threads.push((name, scope.spawn(move || capture(probe, file, stop))));
        }
        let waited = wait_for_the_end();
        stop.store(true, Ordering::Relaxed);
        let mut counts = serde_json::Map::new();
        for (name, thread) in threads {
            let count = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            counts.insert(name.to_owned(), count);
        }
        waited.map(|()| counts)
    })?;
    println!("{}", serde_json::Value::Object(counts));
    Ok(())
}

fn create(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(name);
    File::create(&path).with_context(|| path.display().to_string())
}

fn wait_for_the_end() -> Result<()> {
    crate::wait_for_the_start()?;
    while stdin().read_line(&mut String::new())? > 0 {}
    Ok(())
}

/// Drains one probe into its file until `stop`. Returns the recorded and lost events.
fn capture(probe: Probe, mut file: File, stop: &AtomicBool) -> Result<serde_json::Value> {
    let (sender, queue) = bounded::<Vec<u8>>(QUEUE_BATCHES);
    let counts = thread::scope(|scope| {
        let drainer = scope.spawn(move || empty(probe, &sender, stop));
        let written = queue.iter().try_for_each(|batch| file.write_all(&batch));
        drop(queue);
        let counts = drainer
            .join()
            .map_err(|_| anyhow!("the drainer panicked"))??;
        written.map(|()| counts).context("writing the raw file")
    })?;
    Ok(json!({"recorded": counts.emitted, "lost": counts.lost()}))
}

fn empty(mut probe: Probe, queue: &Sender<Vec<u8>>, stop: &AtomicBool) -> Result<Counts> {
    real_time().context("real-time priority")?;
    let mut clock = Clock::take();
    let mut looked = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if looked.elapsed() >= SECOND {
            looked = Instant::now();
            clock = Clock::take();
        }
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        let is_empty = probe.drain(clock, &mut batch);
        if !batch.is_empty() {
            queue.send(batch).context("the file is not written")?;
        }
        if is_empty {
            thread::sleep(TICK);
        }
    }
    let mut rest = Vec::new();
    let counts = probe.disarm(clock, &mut rest)?;
    queue.send(rest).context("the file is not written")?;
    Ok(counts)
}
