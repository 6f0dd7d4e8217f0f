//! Staging that a killed writer left: the note that names the file, its control page, and the blocks.
//!
//! Input: changes (`patch.rs`) to these regions: the note, the header and the words of the logs in the control page, the staged blocks, the
//! word of the table of pending losses, the table.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;

use loom_engine::format::{LOSS_TABLE_BYTES, LossTable, PendingLoss};
use loom_engine::{Address, LogKind};

use crate::files::{Files, in_folder};
use crate::patch::{Region, apply};
use crate::questions;
use crate::signed::{Note, repaired, sign};
use crate::world::{World, log_path, path};

const CONTROL_BYTES: usize = 4096;
/// The two tables of pending losses stand between the control page and the blocks.
const BLOCKS_OFFSET: usize = 3 * 4096;
/// The word that names the table that counts.
const LOSS_TABLE_WORD: usize = 2560 + 64 * 6;
const LOSS_TABLE_NUMBER: u64 = 2;
/// Bytes of the three logs. The record log's second half is staged, and all of the others that two blocks hold.
const BLOCK_BYTES: [usize; 3] = [64 << 10, 16 << 10, 4096];
const MAGIC: u64 = 0x4741_5453_4D4F_4F4C;
const VERSION: u64 = 2;

/// The words of a log, in their order in the page.
struct Words {
    tail: u64,
    head: u64,
    flushed: u64,
}

/// The staging file's name in its directory.
const FILE: &str = "staged";
/// A note has some more.
const NOTE_BYTES: usize = 256;

pub fn run(input: &[u8]) -> String {
    let changed = |live: &Files| {
        let mut files = live.clone();
        apply(&mut files, &regions(), input);
        if let Some(note) = files.get(&path("staging")).and_then(repaired::<Note>) {
            files.put(path("staging"), note);
        }
        files
    };
    in_folder(|dir| write(dir, changed), questions::ask)
}

/// Writes to `dir`, where there is nothing, what `change` makes of the sound directory with staging.
pub fn write(dir: &Path, change: impl FnOnce(&Files) -> Files) -> io::Result<()> {
    fs::create_dir(dir)?;
    let staged = dir.join(FILE);
    // The note names the file by its inode.
    fs::write(&staged, [])?;
    let files = change(&live(dir, &staged)?);
    if files.get(&path(FILE)).is_none() {
        fs::remove_file(&staged)?;
    }
    files.write(dir)
}

/// In the order in which the fuzzer names them.
pub fn regions() -> [Region; 6] {
    let staged = |from, bytes| Region {
        path: path(FILE),
        from,
        bytes,
    };
    [
        Region {
            path: path("staging"),
            from: 0,
            bytes: NOTE_BYTES,
        },
        staged(0, 64),
        staged(1024, 1536),
        staged(BLOCKS_OFFSET, 2 * BLOCK_BYTES.iter().sum::<usize>()),
        staged(LOSS_TABLE_WORD, 16),
        staged(CONTROL_BYTES, LOSS_TABLE_BYTES),
    ]
}

/// The directory as it would be if its writer had been killed in the next epoch, with the ends of the logs in staging.
fn live(dir: &Path, staged: &Path) -> io::Result<Files> {
    static STAGED: LazyLock<Vec<u8>> = LazyLock::new(|| staging(World::base()));
    let world = World::base();
    let mut uuid: String = world
        .uuid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for at in [8, 13, 18, 23] {
        uuid.insert(at, '-');
    }
    let (of_dir, of_file) = (fs::metadata(dir)?, fs::metadata(staged)?);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let note = Note {
        path: FILE.to_owned(),
        device: of_file.dev(),
        inode: of_file.ino(),
        directory_device: of_dir.dev(),
        directory_inode: of_dir.ino(),
        uuid,
        epoch: EPOCH,
        boot_id: boot_id.trim().to_owned(),
    };
    let mut files = world.files.clone();
    files.put(path("staging"), sign(&note));
    files.put(path(FILE), STAGED.as_slice());
    Ok(files)
}

/// Above any that the directory has seen.
const EPOCH: u64 = 1000;

fn staging(world: &World) -> Vec<u8> {
    let mut page = Vec::new();
    page.extend_from_slice(&MAGIC.to_le_bytes());
    page.extend_from_slice(&VERSION.to_le_bytes());
    page.extend_from_slice(&world.uuid);
    page.extend_from_slice(&EPOCH.to_le_bytes());
    for block in BLOCK_BYTES {
        page.extend_from_slice(&(block as u64).to_le_bytes());
    }
    let mut blocks = Vec::new();
    for (log, block) in LogKind::ALL.into_iter().zip(BLOCK_BYTES) {
        let bytes = match log {
            LogKind::Records => world.records.as_slice(),
            _ => world.files.get(&log_path(log)).unwrap_or_default(),
        };
        let tail = bytes.len();
        let head = tail.saturating_sub(2 * block).next_multiple_of(block);
        // A block of the record log is as long as a unit, and every whole unit is in its segment.
        let flushed = match log {
            LogKind::Records => tail - tail % block,
            _ => head,
        };
        let words = Words {
            tail: tail as u64,
            head: head as u64,
            flushed: flushed as u64,
        };
        page.resize(1024 + 512 * log as usize, 0);
        put_words(&mut page, &words);
        blocks.extend(staged_blocks(bytes, words.head as usize, block));
    }
    page.resize(LOSS_TABLE_WORD, 0);
    page.extend_from_slice(&LOSS_TABLE_NUMBER.to_le_bytes());
    page.extend_from_slice(&(!LOSS_TABLE_NUMBER).to_le_bytes());
    page.resize(CONTROL_BYTES, 0);
    let losses = LossTable {
        rows: vec![PendingLoss::UNKNOWN],
        recorded_below: Address::ZERO,
    };
    page.extend(losses.encode(&world.uuid, LOSS_TABLE_NUMBER));
    page.resize(BLOCKS_OFFSET, 0);
    page.extend(blocks);
    page
}

/// Tail, head, flushed, durable, begin: each with its complement, 64 bytes apart.
fn put_words(page: &mut Vec<u8>, words: &Words) {
    for word in [words.tail, words.head, words.flushed, words.flushed, 0] {
        let end = page.len() + 64;
        page.extend_from_slice(&word.to_le_bytes());
        page.extend_from_slice(&(!word).to_le_bytes());
        page.resize(end, 0);
    }
}

/// The two blocks of a log of which all from `head` on is staged.
fn staged_blocks(log: &[u8], head: usize, block: usize) -> Vec<u8> {
    let mut blocks = vec![0; 2 * block];
    for (byte, address) in log.iter().skip(head).zip(head..) {
        if let Some(place) = blocks.get_mut(address % (2 * block)) {
            *place = *byte;
        }
    }
    blocks
}
