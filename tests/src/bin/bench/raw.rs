//! The peer that no log on the same disk can beat: bytes written in Loom's block size with `O_DIRECT`, and nothing else done.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::write;

use super::clock::{Cost, Stopwatch};
use super::ingest::place_in;

const BLOCK_BYTES: usize = 64 << 20;
const FILE_BYTES: u64 = 1 << 30;
const ALIGNMENT: usize = 4096;

/// Writes so many bytes into files of a gibibyte, of which only the newest `kept_bytes` stay, and syncs them.
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
