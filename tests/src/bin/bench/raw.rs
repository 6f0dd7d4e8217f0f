//! The peers that no log on the same disk can beat: writes in Loom's block size, and reads in its chunks' size at random places, with
//! `O_DIRECT` and no other work.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_tests::seed::Seed;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::write;

use super::clock::{Cost, Stopwatch};
use super::ingest::{files_in, place_in};

const BLOCK_BYTES: usize = 64 << 20;
const FILE_BYTES: u64 = 1 << 30;
const ALIGNMENT: usize = 4096;
/// The seed is fixed, so that each run reads the same places.
const READS_SEED: u64 = 1;

/// Writes `bytes` bytes into files of a gibibyte, of which only the newest `kept_bytes` stay, and syncs them.
pub fn write_raw(folder: &Path, bytes: u64, kept_bytes: u64) -> Result<Cost> {
    let buffer = vec![0xA5_u8; BLOCK_BYTES + ALIGNMENT];
    let skipped = buffer.as_ptr().align_offset(ALIGNMENT);
    let block = buffer
        .get(skipped..skipped + BLOCK_BYTES)
        .context("no aligned block")?;
    let place = place_in(folder)?;
    let watch = Stopwatch::start();
    let mut kept = VecDeque::new();
    let mut left = bytes.next_multiple_of(ALIGNMENT as u64);
    for number in 0.. {
        if left == 0 {
            break;
        }
        let path = place.path().join(format!("raw.{number}"));
        let of_file = left.min(FILE_BYTES);
        write_file(&path, block, of_file).with_context(|| path.display().to_string())?;
        left -= of_file;
        kept.push_back(path);
        if kept.len() as u64 * FILE_BYTES > kept_bytes
            && let Some(oldest) = kept.pop_front()
        {
            std::fs::remove_file(&oldest)?;
        }
    }
    Ok(watch.cost())
}

/// Reads `reads` chunks of `bytes` at random places in the files of a folder, on two threads with one read at a time, like `fio`'s
/// `randread`.
pub fn read_raw(folder: &Path, reads: usize, bytes: usize) -> Result<Cost> {
    let (mut files, mut places) = (Vec::new(), Vec::new());
    for (path, _) in files_in(folder)? {
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        let chunks = file.metadata()?.len() / bytes as u64;
        places.extend((0..chunks).map(|chunk| (files.len(), chunk * bytes as u64)));
        files.push(file);
    }
    let files = files.as_slice();
    let mut seed = Seed::of(READS_SEED);
    let reads = (0..reads).map(|_| seed.pick(&places)).collect::<Vec<_>>();
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        let halves = reads.chunks(reads.len().div_ceil(2).max(1));
        let readers = halves.map(|half| scope.spawn(move || read_all(files, half, bytes)));
        let readers = readers.collect::<Vec<_>>();
        readers.into_iter().try_for_each(|reader| {
            reader
                .join()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))?
        })
    })?;
    Ok(watch.cost())
}

fn read_all(files: &[File], places: &[(usize, u64)], bytes: usize) -> Result<()> {
    let mut buffer = vec![0; bytes + ALIGNMENT];
    let skipped = buffer.as_ptr().align_offset(ALIGNMENT);
    let buffer = buffer
        .get_mut(skipped..skipped + bytes)
        .context("no aligned buffer")?;
    places.iter().try_for_each(|(file, offset)| {
        let file = files.get(*file).context("no such file")?;
        Ok(file.read_exact_at(buffer, *offset)?)
    })
}

fn write_file(path: &Path, block: &[u8], bytes: u64) -> Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT;
    let file =
        rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).context("opening with O_DIRECT")?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes).context("allocating")?;
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        left -= write(&file, block.get(..left.min(BLOCK_BYTES)).unwrap_or(block))?;
    }
    let file = File::from(file);
    file.sync_all()?;
    ensure!(file.metadata()?.len() == bytes, "the file is cut short");
    Ok(())
}
