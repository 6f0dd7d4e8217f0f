//! Files that verify but claim lengths, counts and addresses that do not exist: each place of FORMAT.md that holds one is forged, and its
//! checksums are made right. With little memory, `check` names the file, a reader returns every row or an error that names the file, and a
//! writer goes on or refuses. None is killed, and none runs for ever.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use loom_engine::format::{
    LOSS_TABLE_BYTES, LOSSES_LOG, SLOT_LOG, SegmentDirectory, TAIL_PIECE_HEADER_BYTES,
    TIME_ENTRY_BYTES, TimeEntry, checksum, checksum_for, crc32c, encode_line, put_raw_unit,
    put_trailer,
};
use loom_engine::ingest::Writer;
use loom_engine::log::LogReader;
use loom_engine::schema::parse_sources;
use loom_engine::testkit::options;
use loom_engine::{Address, LogKind};
use loom_tests::command::{file, source, table, word};
use loom_tests::daemon::Daemon;
use loom_tests::small::{CHUNK_BYTES, SEGMENT_BYTES, Small, TAIL, is_segment};

use super::in_little_memory;

/// The claim of a place of 64 bits. A narrower place claims the most that it can.
const CLAIMED: u64 = 1 << 60;
const RECORDS: u64 = 12_000;

/// The required outcome of a forgery.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Owed {
    /// `check` names the file, and a reader returns every row, because other places hold the same facts.
    Rows,
    /// `check` names the file, and a reader returns every row or an error that names the file.
    Named,
    /// The same, or `check` sees nothing wrong and a reader returns every row: a zone that claims other values passes over rows of conditions alone.
    NamedOrZone,
    /// A reader returns every row and does not use the place.
    Unused,
}

/// A directory, its original files, and the failures of the forgeries so far.
struct World {
    dir: PathBuf,
    uuid: [u8; 16],
    files: Vec<(PathBuf, Vec<u8>)>,
    wrong: Vec<String>,
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let folders = ["", "records", "chunks", "times"].map(|folder| dir.join(folder));
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

impl World {
    fn of(dir: &Path) -> World {
        let held = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
        World {
            dir: dir.to_owned(),
            uuid: LogReader::open(dir).unwrap().meta().uuid,
            files: files(dir).into_iter().map(held).collect(),
            wrong: Vec::new(),
        }
    }

    /// Restores the files that the programs changed.
    fn mend(&self) {
        for path in files(&self.dir) {
            if !self.files.iter().any(|(known, _)| *known == path) {
                fs::remove_file(path).unwrap();
            }
        }
        for (path, bytes) in &self.files {
            if fs::read(path).ok().as_ref() != Some(bytes) {
                fs::write(path, bytes).unwrap();
            }
        }
    }

    /// Forges a place in the sound directory, and checks the outcome.
    fn place(&mut self, place: &str, owed: Owed, forge: impl FnOnce(&World) -> PathBuf) {
        let forged = forge(&*self);
        if let Err(error) = self.judge(&forged, owed) {
            self.wrong.push(format!("{place}: {error:#}"));
        }
        self.mend();
    }

    fn judge(&self, forged: &Path, owed: Owed) -> Result<()> {
        let dir = word(&self.dir);
        let name = word(forged.strip_prefix(&self.dir)?);
        let name = name.split('.').next().unwrap_or(name);
        let (is_sound, said) = in_little_memory(&["check", dir])?;
        let is_named = !is_sound && said.contains(name);
        ensure!(
            is_named || owed == Owed::Unused || is_sound && owed == Owed::NamedOrZone,
            "check: {said}"
        );
        let out = self.dir.with_extension("parquet");
        let export = ["export", dir, "--source", "r", "--out", word(&out)];
        let (goes_on, said) = in_little_memory(&export)?;
        let has_all = goes_on && said.contains(&format!("rows={RECORDS}"));
        let may_be_named = owed == Owed::Named || owed == Owed::NamedOrZone && !is_sound;
        let is_named = may_be_named && !goes_on && said.contains(name);
        ensure!(has_all || is_named, "export: {said}");
        let rows = self.dir.with_extension("csv");
        fs::write(&rows, "n,mark\n1,2\n")?;
        let (goes_on, said) = in_little_memory(&["load", dir, "--source", "r", word(&rows)])?;
        ensure!(goes_on || said.contains(dir), "load: {said}");
        Ok(())
    }

    #[track_caller]
    fn end(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }

    /// The segments of a log, in order.
    fn segments(&self, log: LogKind) -> impl Iterator<Item = &(PathBuf, Vec<u8>)> {
        let folder = self.dir.join(log.dir_name());
        let files = self.files.iter();
        files.filter(move |(path, _)| path.parent() == Some(&folder))
    }

    /// The bytes of a log.
    fn log(&self, log: LogKind) -> Vec<u8> {
        let segments = self.segments(log);
        segments
            .flat_map(|(_, bytes)| bytes.iter().copied())
            .collect()
    }

    /// Writes bytes to a log at an address. Returns the segment that they begin in.
    fn put(&self, log: LogKind, at: Address, bytes: &[u8]) -> PathBuf {
        let mut first = 0;
        let mut begun = None;
        for (path, held) in self.segments(log) {
            let mut changed = held.clone();
            for (byte, address) in bytes.iter().zip(at.0 as usize..) {
                let place = address.checked_sub(first);
                if let Some(place) = place.and_then(|place| changed.get_mut(place)) {
                    *place = *byte;
                    begun.get_or_insert(path);
                }
            }
            first += held.len();
            if changed != *held {
                fs::write(path, changed).unwrap();
            }
        }
        begun.unwrap().clone()
    }

    /// The entry of the timestamp index for the first node of a level, and its address.
    fn entry(&self, level: u8) -> (Address, TimeEntry) {
        let log = self.log(LogKind::Times);
        let places = (0..).step_by(TIME_ENTRY_BYTES).map(Address);
        let mut entries = log.chunks_exact(TIME_ENTRY_BYTES).zip(places);
        let entry = entries.find_map(|(bytes, at)| {
            let entry = TimeEntry::decode(&self.uuid, at, bytes).unwrap();
            (entry.level == level).then_some((at, entry))
        });
        entry.unwrap()
    }

    /// Changes the first node of a level.
    fn forge_node(&self, level: u8, change: impl FnOnce(&mut [u8])) -> PathBuf {
        let (_, entry) = self.entry(level);
        let start = entry.node.0 as usize;
        let mut node = self.log(LogKind::Chunks)[start..start + entry.node_bytes as usize].to_vec();
        change(&mut node);
        let sum = checksum(&self.uuid, LogKind::Chunks, entry.node, &node[8..]);
        put_u32(&mut node, 4, sum);
        self.put(LogKind::Chunks, entry.node, &node)
    }

    /// Changes the entry of the first node of a level.
    fn forge_entry(&self, level: u8, change: impl FnOnce(&mut [u8])) -> PathBuf {
        let (at, _) = self.entry(level);
        let start = at.0 as usize;
        let mut entry = self.log(LogKind::Times)[start..start + TIME_ENTRY_BYTES].to_vec();
        change(&mut entry);
        let sum = checksum(&self.uuid, LogKind::Times, at, &entry[4..]);
        put_u32(&mut entry, 0, sum);
        self.put(LogKind::Times, at, &entry)
    }

    /// Changes the second chunk. The first unit is rewritten as a raw one, which can hold any bytes.
    fn forge_chunk(&self, change: impl FnOnce(&mut [u8])) -> PathBuf {
        let mut chunks = vec![0; SEGMENT_BYTES as usize];
        let reader = LogReader::open(&self.dir).unwrap();
        reader
            .read(LogKind::Records, Address::ZERO, &mut chunks)
            .unwrap();
        let second = &mut chunks[CHUNK_BYTES as usize..2 * CHUNK_BYTES as usize];
        change(second);
        put_trailer(&self.uuid, Address(CHUNK_BYTES), second);
        let mut file = Vec::new();
        let chunk_bytes = CHUNK_BYTES as u32;
        put_raw_unit(&self.uuid, Address::ZERO, chunk_bytes, &chunks, &mut file);
        let starts = vec![0, file.len() as u64];
        SegmentDirectory::new(starts).encode(&self.uuid, Address::ZERO, &mut file);
        let (path, _) = self.segments(LogKind::Records).next().unwrap();
        fs::write(path, file).unwrap();
        path.clone()
    }

    /// Forges all pieces of the tail.
    fn forge_pieces(&self, at: usize) -> PathBuf {
        const TAIL_LOG: u8 = 6;
        let path = self.dir.join(TAIL);
        let mut file = fs::read(&path).unwrap();
        let begins = |place: &usize| file[*place..].starts_with(b"TAIL");
        let places: Vec<usize> = (0..file.len()).step_by(8).filter(begins).collect();
        assert!(!places.is_empty());
        for place in places {
            let bytes = u64::from(u32_at(&file, place + 8)) as usize;
            let piece = &mut file[place..place + TAIL_PIECE_HEADER_BYTES + bytes];
            claim(piece, at, 8);
            let address = u64::from_le_bytes(piece[16..24].try_into().unwrap());
            let sum = checksum_for(&self.uuid, TAIL_LOG, address, &piece[8..]);
            put_u32(piece, 4, sum);
        }
        fs::write(&path, file).unwrap();
        path
    }

    /// Forges both slots of `durable`.
    fn forge_slots(&self, at: usize, width: usize) -> PathBuf {
        const TABLE: usize = 152;
        let path = self.dir.join("durable");
        let mut file = fs::read(&path).unwrap();
        for (slot, number) in file.chunks_exact_mut(4096).zip(0..) {
            claim(slot, at, width);
            let sequence = u64::from_le_bytes(slot[8..16].try_into().unwrap());
            put_losses_sum(&self.uuid, sequence, &mut slot[TABLE..]);
            let sum = checksum_for(&self.uuid, SLOT_LOG, number, &slot[8..]);
            put_u32(slot, 4, sum);
        }
        fs::write(&path, file).unwrap();
        path
    }

    /// Replaces a text in `loom.json` and its copy.
    fn forge_meta(&self, from: &str, to: &str) -> PathBuf {
        let path = self.dir.join("loom.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        let text = text.replacen(from, to, 1);
        let (members, _) = text.split_once(",\n  \"checksum\"").unwrap();
        let compact: String = members.split_whitespace().collect();
        let sum = crc32c(&[format!("{compact}}}").as_bytes()]);
        let text = format!("{members},\n  \"checksum\": {sum}\n}}\n");
        fs::write(&path, &text).unwrap();
        fs::write(self.dir.join("loom.json.copy"), &text).unwrap();
        path
    }

    /// Replaces a text in the catalog and its copy.
    fn forge_catalog(&self, from: &str, to: &str) -> PathBuf {
        let path = self.dir.join("catalog");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        let lines = text.lines().zip(0..).map(|(line, number)| {
            let content = line.get(9..).unwrap_or_default().replacen(from, to, 1);
            encode_line(&self.uuid, number, &content)
        });
        let lines: String = lines.collect();
        for name in ["catalog", "catalog.copy"] {
            fs::write(self.dir.join(name), &lines).unwrap();
        }
        path
    }
}

/// Writes a claim to a place: all bits of 1, 2 or 4 bytes, or [`CLAIMED`].
fn claim(bytes: &mut [u8], at: usize, width: usize) {
    match width {
        8 => bytes[at..at + 8].copy_from_slice(&CLAIMED.to_le_bytes()),
        _ => bytes[at..at + width].fill(0xFF),
    }
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Corrects the checksum of a table of pending losses.
fn put_losses_sum(uuid: &[u8; 16], number: u64, table: &mut [u8]) {
    let sum = checksum_for(uuid, LOSSES_LOG, number, &table[4..LOSS_TABLE_BYTES]);
    put_u32(table, 0, sum);
}

/// The names of places, with the offset and the width of each.
fn places(text: &str) -> Vec<(&str, usize, usize)> {
    let number = |text: &str| -> usize { text.parse().unwrap() };
    let rows = table::<3>(text).into_iter();
    rows.map(|[name, at, width]| (name, number(at), number(width)))
        .collect()
}

// G8
#[test]
fn small_files_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let mut world = World::of(&small.dir);
    let huge = CLAIMED.to_string();
    world.place("chunk_bytes", Owed::Named, |world| {
        world.forge_meta("\"chunk_bytes\": 4096", &format!("\"chunk_bytes\": {huge}"))
    });
    let sound = [(); 3].map(|()| SEGMENT_BYTES.to_string());
    for log in 0..3 {
        let mut forged = sound.clone();
        forged[log] = huge.clone();
        world.place(
            &format!("segment_bytes of log {log}"),
            Owed::Named,
            |world| world.forge_meta(&sound.join(",\n    "), &forged.join(",\n    ")),
        );
    }
    for (name, owed, from, to) in [
        (
            "bytes of a field",
            Owed::Named,
            "\"u64\"",
            format!("\"bytes[{huge}]\""),
        ),
        (
            "at of an event",
            Owed::Unused,
            "\"at\":0",
            format!("\"at\":{huge}"),
        ),
        (
            "number of a source",
            Owed::Named,
            "\"source\":1",
            format!("\"source\":{huge}"),
        ),
    ] {
        world.place(name, owed, |world| world.forge_catalog(from, &to));
    }
    for log in 0..3 {
        for (word, name) in [(0, "durable tail"), (8, "begin"), (24, "resumption")] {
            // Only the record log resumes; the index logs end where they verify.
            let owed = match (log, word) {
                (_, 8) | (0, 0) => Owed::Named,
                _ => Owed::Unused,
            };
            world.place(&format!("{name} of log {log}"), owed, |world| {
                world.forge_slots(48 + 32 * log + word, 8)
            });
        }
    }
    for (name, at) in [("length", 8), ("address", 16)] {
        world.place(&format!("{name} of a piece"), Owed::Named, |world| {
            world.forge_pieces(at)
        });
    }
    for (name, at, width) in [
        ("bytes of the catalog", 144, 8),
        ("rows of pending losses", 156, 4),
        ("end of the units", 3256, 8),
    ] {
        world.place(name, Owed::Named, |world| world.forge_slots(at, width));
    }
    world.end();
    Ok(())
}

// G8
#[test]
fn records_nodes_and_entries_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let mut world = World::of(&small.dir);
    world.place("length of a record", Owed::Named, |world| {
        world.forge_chunk(|chunk| claim(chunk, 8 + 2, 2))
    });
    world.place("length of a text", Owed::Named, |world| {
        world.forge_chunk(|chunk| {
            let text = chunk.windows(7).position(|text| text == b"between");
            claim(chunk, text.map_or(0, |at| at - 2), 2);
        })
    });
    // The first source begins at 56.
    let in_node = places(
        "
        length                    |   8 | 4
        sources                   |  14 | 2
        first chunk               |  16 | 8
        records                   |  40 | 8
        indexes                   |  48 | 4
        chunks without a summary  |  52 | 4
        records of a source       |  64 | 8
        latest earlier chunk      | 104 | 8
        first child or record     | 112 | 4
        last child or record      | 116 | 4
        child columns             | 128 | 4
        bytes of a source         | 136 | 8
        ",
    );
    let in_index_table = places("offset | 8 | 4\n length | 12 | 4");
    let in_index = places("count | 0 | 8\n greatest values | 42 | 2\n bins | 44 | 4");
    let in_entry = places("first chunk | 8 | 8\n node | 16 | 8\n length | 24 | 4");
    for level in [0, 1] {
        for (name, at, width) in &in_node {
            world.place(
                &format!("{name} of a node of level {level}"),
                Owed::Rows,
                |world| world.forge_node(level, |node| claim(node, *at, *width)),
            );
        }
        for (name, at, width) in &in_index_table {
            let name = format!("{name} of an index block of level {level}");
            world.place(&name, Owed::Rows, |world| {
                world.forge_node(level, |node| claim(node, indexes_of(node) + at, *width))
            });
        }
        for (name, at, width) in &in_index {
            let name = format!("{name} in an index block of level {level}");
            world.place(&name, Owed::Rows, |world| {
                world.forge_node(level, |node| {
                    let offset = u32_at(node, indexes_of(node) + 8) as usize;
                    claim(node, offset + at, *width);
                })
            });
        }
        for (name, at, width) in &in_entry {
            world.place(
                &format!("{name} in an entry of level {level}"),
                Owed::Rows,
                |world| world.forge_entry(level, |entry| claim(entry, *at, *width)),
            );
        }
    }
    world.end();
    Ok(())
}

/// The offset of the index table in a node that is not narrow.
fn indexes_of(node: &[u8]) -> usize {
    56 + 88 * usize::from(u16::from_le_bytes([node[14], node[15]]))
}

// G8
#[test]
fn narrow_nodes_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("many");
    let mut writer = Writer::open(&dir, options(64 << 10, 64 << 20))?;
    let others: String = (0..40).map(|n| source(&format!("s{n}"), "n u64")).collect();
    let toml = source("r", "n u64, mark u64") + &others;
    let ids = writer.define_sources(&parse_sources(&toml)?)?;
    for n in 0..RECORDS {
        writer.push(ids[0], &[n.to_le_bytes(), n.to_le_bytes()].concat())?;
        if n % 20 == 0 {
            for other in &ids[1..] {
                writer.push(*other, &n.to_le_bytes())?;
            }
        }
    }
    writer.close()?;
    let mut world = World::of(&dir);
    for (level, column) in (0..2).flat_map(|level| (0..16).map(move |column| (level, column))) {
        for (name, at) in [("offset", 16), ("width", 20)] {
            let name = format!("{name} of column {column} of level {level}");
            world.place(&name, Owed::Rows, |world| {
                world.forge_node(level, |node| claim(node, 56 + 24 * column + at, 4))
            });
        }
    }
    world.end();
    Ok(())
}

// G8
#[test]
fn segments_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    const COLUMNS_LOG: u8 = 5;
    // The header is followed by the checksum of each chunk and by the flags of the chunks with anchors.
    const NUMBERS: usize = 24 + 5 * 16;
    let small = Small::in_columns(RECORDS)?;
    let mut world = World::of(&small.dir);
    let (path, sound) = world
        .files
        .iter()
        .find(|(path, _)| is_segment(path))
        .unwrap()
        .clone();
    let (uuid, end) = (world.uuid, sound.len());
    let head_bytes = u32_at(&sound, 12) as usize;
    let directory = end - 16 - 8 * (u32_at(&sound, end - 12) as usize + 1);
    let mut forge = |place: &str, owed: Owed, change: &dyn Fn(&mut [u8])| {
        let mut file = sound.clone();
        change(&mut file);
        let sum = checksum_for(&uuid, COLUMNS_LOG, 0, &file[8..head_bytes]);
        put_u32(&mut file, 4, sum);
        let sum = checksum_for(&uuid, COLUMNS_LOG, 0, &file[directory..end - 16]);
        put_u32(&mut file, end - 16, sum);
        world.place(place, owed, |_| {
            fs::write(&path, file).unwrap();
            path.clone()
        });
    };
    for (name, at, width) in
        places("length | 8 | 4\n head | 12 | 4\n chunks | 17 | 1\n streams | 18 | 2")
    {
        let name = format!("{name} of a unit");
        forge(&name, Owed::Named, &|file| claim(file, at, width));
    }
    // The places of the head's numbers vary, so each of its bytes is tried as the begin of one.
    for at in NUMBERS..head_bytes - 9 {
        let name = format!("number at {at} of a head");
        forge(&name, Owed::NamedOrZone, &|file| {
            file[at..at + 8].fill(0x80);
            file[at + 8] = 0x10;
        });
    }
    forge("number of units", Owed::Named, &|file| {
        claim(file, end - 12, 4)
    });
    for nth in 0..3 {
        forge(&format!("begin of unit {nth}"), Owed::Named, &|file| {
            claim(file, end - 40 + 8 * nth, 8)
        });
    }
    world.end();
    Ok(())
}

// G8
#[test]
fn staging_that_claims_too_much_is_named_in_little_memory() -> Result<()> {
    const WORDS: [&str; 5] = ["tail", "head", "flushed", "durable", "begin"];
    let place = tempfile::tempdir()?;
    let dir = place.path().join("live");
    let config = "[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n";
    let daemon = Daemon::start(&dir, config)?;
    let lines: String = (0..RECORDS).map(|n| format!("{n},7\n")).collect();
    let rows = file(place.path(), "rows.csv", format!("n,mark\n{lines}"));
    let rows = rows.as_str();
    let fields = file(place.path(), "r.toml", source("r", "n i64?, mark i64?"));
    let load = [
        "load",
        word(&dir),
        "--source",
        "r",
        "--fields",
        &fields,
        rows,
    ];
    let (is_loaded, said) = in_little_memory(&load)?;
    ensure!(is_loaded, "{said}");
    daemon.kill()?;
    let note: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("staging"))?)?;
    let staging = PathBuf::from(note["path"].as_str().unwrap());
    let sound = fs::read(&staging)?;
    // A stop removes the name, while the note identifies the file itself.
    let name = staging.file_name().unwrap().to_str().unwrap();
    let kept = staging.with_file_name(format!("kept-{name}"));
    fs::hard_link(&staging, &kept)?;
    let world = World::of(&dir);
    let mut forged: Vec<(String, Vec<u8>)> = Vec::new();
    let mut forge = |name: String, change: &dyn Fn(&mut [u8])| {
        let mut file = sound.clone();
        change(&mut file);
        forged.push((name, file));
    };
    let word_at = |at: usize| {
        move |file: &mut [u8]| {
            claim(file, at, 8);
            file[at + 8..at + 16].copy_from_slice(&(!CLAIMED).to_le_bytes());
        }
    };
    for log in 0..3 {
        for (k, name) in WORDS.iter().enumerate() {
            forge(
                format!("{name} of log {log}"),
                &word_at(1024 + 512 * log + 64 * k),
            );
        }
        forge(format!("block of log {log}"), &|file| {
            claim(file, 40 + 8 * log, 8)
        });
    }
    for (k, name) in [(5, "bytes of the catalog"), (6, "number of the table")] {
        forge(name.to_owned(), &word_at(2560 + 64 * k));
    }
    let number = u64::from_le_bytes(sound[2560 + 64 * 6..][..8].try_into()?);
    let table = 4096 + (number % 2) as usize * 4096;
    forge("rows of pending losses".to_owned(), &|file| {
        claim(file, table + 4, 4);
        put_losses_sum(&world.uuid, number, &mut file[table..]);
    });
    let mut wrong = Vec::new();
    for (name, file) in forged {
        // The file is overwritten in place, because the note holds its inode.
        fs::write(&staging, &file)?;
        let out = dir.with_extension("parquet");
        for words in [
            &["check", word(&dir)][..],
            &["export", word(&dir), "--source", "r", "--out", word(&out)],
            &["load", word(&dir), "--source", "r", rows],
        ] {
            match in_little_memory(words) {
                Ok((false, said)) if !said.contains(word(&dir)) && !said.contains("/dev/shm") => {
                    wrong.push(format!("{name}: {said}"));
                }
                Ok(_) => {}
                Err(error) => wrong.push(format!("{name}: {error:#}")),
            }
        }
        world.mend();
        if !staging.exists() {
            fs::hard_link(&kept, &staging)?;
        }
    }
    fs::remove_file(&staging)?;
    fs::remove_file(&kept)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
