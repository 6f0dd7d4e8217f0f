//! Files that verify and claim lengths, counts and addresses that nothing has: each place of FORMAT.md that holds one, forged with its
//! checksums made right. In little memory `check` names the file, a reader gives every row or an error that names it, and a writer goes on
//! or refuses; none is killed, and none goes on for ever.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use loom_engine::Address;
use loom_engine::LogKind;
use loom_engine::format::{
    LOSS_TABLE_BYTES, LOSSES_LOG, SLOT_LOG, TIME_ENTRY_BYTES, TimeEntry, checksum, checksum_for,
    crc32c, encode_line, put_trailer,
};
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::{LogOptions, LogReader};
use loom_engine::schema::parse_sources;
use loom_tests::daemon::Daemon;
use loom_tests::machine;
use loom_tests::small::{CHUNK_BYTES, SEGMENT_BYTES, Small, is_columns};

/// What a place of 64 bits claims; narrower ones claim all that they can.
const CLAIMED: u64 = 1 << 60;
const RECORDS: u64 = 12_000;
/// What the programs may take, as `ulimit` counts it.
const KIB_MAX: u32 = 1_000_000;

/// A directory, and its files as they were.
struct World {
    dir: PathBuf,
    uuid: [u8; 16],
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl World {
    fn of(dir: &Path) -> Result<World> {
        let mut world = World {
            dir: dir.to_owned(),
            uuid: LogReader::open(dir)?.meta().uuid,
            files: Vec::new(),
        };
        for folder in ["", "records", "chunks", "times"] {
            for entry in fs::read_dir(dir.join(folder))? {
                let path = entry?.path();
                if path.is_file() {
                    let bytes = fs::read(&path)?;
                    world.files.push((path, bytes));
                }
            }
        }
        world.files.sort();
        Ok(world)
    }

    /// Puts back what the programs changed.
    fn mend(&self) -> Result<()> {
        for folder in ["", "records", "chunks", "times"] {
            for entry in fs::read_dir(self.dir.join(folder))? {
                let path = entry?.path();
                if path.is_file() && !self.files.iter().any(|(known, _)| *known == path) {
                    fs::remove_file(&path)?;
                }
            }
        }
        for (path, bytes) in &self.files {
            if fs::read(path).ok().as_ref() != Some(bytes) {
                fs::write(path, bytes)?;
            }
        }
        Ok(())
    }

    /// The segments of a log, in order, and its bytes.
    fn log(&self, log: LogKind) -> (Vec<PathBuf>, Vec<u8>) {
        let folder = self.dir.join(log.dir_name());
        let own = self
            .files
            .iter()
            .filter(|(path, _)| path.parent() == Some(&folder));
        let (paths, bytes): (Vec<_>, Vec<_>) = own.cloned().unzip();
        (paths, bytes.concat())
    }

    /// Writes bytes to a log at an address. Returns the segment that they begin in.
    fn put(&self, log: LogKind, at: u64, bytes: &[u8]) -> Result<PathBuf> {
        let (paths, _) = self.log(log);
        let mut first = 0;
        let mut begun = None;
        for path in paths {
            let held = fs::read(&path)?;
            let mut changed = held.clone();
            for (byte, address) in bytes.iter().zip(at..) {
                let place = address
                    .checked_sub(first)
                    .and_then(|place| changed.get_mut(place as usize));
                if let Some(place) = place {
                    *place = *byte;
                    begun.get_or_insert(path.clone());
                }
            }
            first += held.len() as u64;
            if changed != held {
                fs::write(&path, changed)?;
            }
        }
        begun.context("no segment holds the address")
    }

    /// The entries of the timestamp index that have a node, and where they stand.
    fn entries(&self) -> Result<Vec<(u64, TimeEntry)>> {
        let (_, bytes) = self.log(LogKind::Times);
        let entries = bytes
            .chunks_exact(TIME_ENTRY_BYTES)
            .zip((0..).step_by(TIME_ENTRY_BYTES));
        let entries =
            entries.map(|(bytes, at)| Ok((at, TimeEntry::decode(&self.uuid, Address(at), bytes)?)));
        let entries: Result<Vec<_>> = entries.take_while(|entry| entry.is_ok()).collect();
        entries
    }

    /// Changes a node of a level, at a place in it.
    fn forge_node(&self, level: u8, change: impl Fn(&mut [u8])) -> Result<PathBuf> {
        let (_, bytes) = self.log(LogKind::Chunks);
        let entries = self.entries()?;
        let (_, entry) = entries
            .iter()
            .find(|(_, entry)| entry.level == level)
            .context("no such node")?;
        let start = entry.node.0 as usize;
        let mut node = bytes
            .get(start..start + entry.node_bytes as usize)
            .context("a node")?
            .to_vec();
        change(&mut node);
        let sum = checksum(&self.uuid, LogKind::Chunks, entry.node, &node[8..]);
        node[4..8].copy_from_slice(&sum.to_le_bytes());
        self.put(LogKind::Chunks, entry.node.0, &node)
    }

    /// Changes the entry of the first node of a level.
    fn forge_entry(&self, level: u8, change: impl Fn(&mut [u8])) -> Result<PathBuf> {
        let (_, bytes) = self.log(LogKind::Times);
        let entries = self.entries()?;
        let (at, _) = entries
            .iter()
            .find(|(_, entry)| entry.level == level)
            .context("no such node")?;
        let start = *at as usize;
        let mut entry = bytes[start..start + TIME_ENTRY_BYTES].to_vec();
        change(&mut entry);
        let sum = checksum(&self.uuid, LogKind::Times, Address(*at), &entry[4..]);
        entry[..4].copy_from_slice(&sum.to_le_bytes());
        self.put(LogKind::Times, *at, &entry)
    }

    /// Changes the second chunk.
    fn forge_chunk(&self, change: impl Fn(&mut [u8])) -> Result<PathBuf> {
        let (_, bytes) = self.log(LogKind::Records);
        let start = CHUNK_BYTES as usize;
        let mut chunk = bytes[start..2 * start].to_vec();
        change(&mut chunk);
        put_trailer(&self.uuid, Address(CHUNK_BYTES), &mut chunk);
        self.put(LogKind::Records, CHUNK_BYTES, &chunk)
    }

    /// Changes both slots of `durable`.
    fn forge_slots(&self, change: impl Fn(&mut [u8])) -> Result<PathBuf> {
        const TABLE: usize = 152;
        let path = self.dir.join("durable");
        let mut file = fs::read(&path)?;
        for (slot, number) in file.chunks_exact_mut(4096).zip(0..) {
            change(slot);
            let sequence = u64::from_le_bytes(slot[8..16].try_into()?);
            let table = &slot[TABLE + 4..TABLE + LOSS_TABLE_BYTES];
            let sum = checksum_for(&self.uuid, LOSSES_LOG, sequence, table);
            slot[TABLE..TABLE + 4].copy_from_slice(&sum.to_le_bytes());
            let sum = checksum_for(&self.uuid, SLOT_LOG, number, &slot[8..]);
            slot[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(&path, file)?;
        Ok(path)
    }

    /// Replaces a text in `loom.json` and its copy.
    fn forge_meta(&self, from: &str, to: &str) -> Result<PathBuf> {
        let path = self.dir.join("loom.json");
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{text}");
        let text = text.replacen(from, to, 1);
        let (members, _) = text
            .split_once(",\n  \"checksum\"")
            .context("no checksum")?;
        let compact: String = members
            .chars()
            .filter(|letter| !letter.is_whitespace())
            .collect();
        let sum = crc32c(&[format!("{compact}}}").as_bytes()]);
        let text = format!("{members},\n  \"checksum\": {sum}\n}}\n");
        fs::write(&path, &text)?;
        fs::write(self.dir.join("loom.json.copy"), &text)?;
        Ok(path)
    }

    /// Replaces a text in the catalog and its copy.
    fn forge_catalog(&self, from: &str, to: &str) -> Result<PathBuf> {
        let path = self.dir.join("catalog");
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{text}");
        let lines = text.lines().zip(0..).map(|(line, number)| {
            let content = line.get(9..).unwrap_or_default().replacen(from, to, 1);
            encode_line(&self.uuid, number, &content)
        });
        let lines: String = lines.collect();
        for name in ["catalog", "catalog.copy"] {
            fs::write(self.dir.join(name), &lines)?;
        }
        Ok(path)
    }
}

/// What is owed for a forgery.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Owed {
    /// `check` names the file, and a reader gives every row, which others tell.
    Rows,
    /// `check` names the file, and a reader gives every row or an error that names it.
    Named,
    /// A reader gives every row, and does not use the place.
    Unused,
}

/// A program in little memory: its exit code and what it says.
fn in_little_memory(arguments: &[&str]) -> Result<(i32, String)> {
    let limits = format!("ulimit -v {KIB_MAX}; exec timeout 60 \"$@\"");
    let output = Command::new("bash")
        .args(["-c", &limits, "bash"])
        .arg(machine::ingestd()?)
        .args(arguments)
        .output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let code = output.status.code();
    match code {
        Some(code @ (0 | 1)) => Ok((code, said)),
        _ => bail!("{arguments:?} ended with {}: {said}", output.status),
    }
}

/// Holds what is owed of a forged directory, in which `path` is forged.
fn judge(world: &World, path: &Path, owed: Owed) -> Result<()> {
    let dir = world.dir.to_str().context("a path")?;
    let name = path.strip_prefix(&world.dir)?.to_str().context("a path")?;
    let name = name.split('.').next().unwrap_or(name);
    let (code, said) = in_little_memory(&["check", dir])?;
    let is_named = code == 1 && said.contains(name);
    ensure!(is_named || owed == Owed::Unused, "check: {code} {said}");
    let out = world.dir.with_extension("parquet");
    let shown = out.to_str().context("a path")?;
    let (code, said) = in_little_memory(&["export", dir, "--source", "r", "--out", shown])?;
    let has_all = code == 0 && said.contains(&format!("rows={RECORDS}"));
    let is_named = owed == Owed::Named && code == 1 && said.contains(name);
    ensure!(has_all || is_named, "export: {code} {said}");
    let rows = world.dir.with_extension("csv");
    fs::write(&rows, "n,mark\n1,2\n")?;
    let load = [
        "load",
        dir,
        "--source",
        "r",
        rows.to_str().context("a path")?,
    ];
    let (code, said) = in_little_memory(&load)?;
    ensure!(code == 0 || said.contains(dir), "load: {code} {said}");
    Ok(())
}

/// Forges one place after the other, each in the sound directory.
struct Places<'a> {
    world: &'a World,
    wrong: Vec<String>,
}

impl Places<'_> {
    fn place(
        &mut self,
        place: &str,
        owed: Owed,
        forge: impl FnOnce(&World) -> Result<PathBuf>,
    ) -> Result<()> {
        let forged = forge(self.world)?;
        if let Err(error) = judge(self.world, &forged, owed) {
            self.wrong.push(format!("{place}: {error:#}"));
        }
        self.world.mend()
    }

    fn end(self) -> Result<()> {
        ensure!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        Ok(())
    }
}

/// Stores a claim at a place: all bits of 2 or 4 bytes, or [`CLAIMED`].
fn claim(bytes: &mut [u8], at: usize, width: usize) {
    match width {
        8 => bytes[at..at + 8].copy_from_slice(&CLAIMED.to_le_bytes()),
        _ => bytes[at..at + width].fill(0xFF),
    }
}

// G8
#[test]
fn small_files_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let world = World::of(&small.dir)?;
    let mut places = Places {
        world: &world,
        wrong: Vec::new(),
    };
    let huge = CLAIMED.to_string();
    places.place("chunk_bytes", Owed::Named, |world| {
        world.forge_meta("\"chunk_bytes\": 4096", &format!("\"chunk_bytes\": {huge}"))
    })?;
    for nth in 0..3 {
        let sizes = |forged: Option<usize>| {
            let sizes = (0..3).map(|log| match forged == Some(log) {
                true => huge.clone(),
                false => SEGMENT_BYTES.to_string(),
            });
            sizes.collect::<Vec<_>>().join(",\n    ")
        };
        places.place(
            &format!("segment_bytes of log {nth}"),
            Owed::Named,
            |world| world.forge_meta(&sizes(None), &sizes(Some(nth))),
        )?;
    }
    places.place("bytes of a field", Owed::Named, |world| {
        world.forge_catalog("\"u64\"", &format!("\"bytes[{huge}]\""))
    })?;
    places.place("at of an event", Owed::Unused, |world| {
        world.forge_catalog("\"at\":0", &format!("\"at\":{CLAIMED}"))
    })?;
    places.place("number of a source", Owed::Named, |world| {
        world.forge_catalog("\"source\":1", &format!("\"source\":{CLAIMED}"))
    })?;
    for log in 0..3 {
        for (word, name) in [(0, "durable tail"), (8, "begin"), (24, "resumption")] {
            // Only records resume; the index logs end where they verify.
            let owed = match (log, word) {
                (_, 8) | (0, 0) => Owed::Named,
                _ => Owed::Unused,
            };
            places.place(&format!("{name} of log {log}"), owed, |world| {
                world.forge_slots(|slot| claim(slot, 48 + 32 * log + word, 8))
            })?;
        }
    }
    places.place("bytes of the catalog", Owed::Named, |world| {
        world.forge_slots(|slot| claim(slot, 144, 8))
    })?;
    places.place("rows of pending losses", Owed::Named, |world| {
        world.forge_slots(|slot| claim(slot, 152 + 4, 4))
    })?;
    places.end()
}

// G8
#[test]
fn records_nodes_and_entries_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let world = World::of(&small.dir)?;
    let mut places = Places {
        world: &world,
        wrong: Vec::new(),
    };
    places.place("length of a record", Owed::Named, |world| {
        world.forge_chunk(|chunk| claim(chunk, 8 + 2, 2))
    })?;
    places.place("length of a text", Owed::Named, |world| {
        world.forge_chunk(|chunk| {
            let text = chunk.windows(7).position(|text| text == b"between");
            claim(chunk, text.map_or(0, |at| at - 2), 2);
        })
    })?;
    for level in [0, 1] {
        for (name, at, width) in [
            ("length", 8, 4),
            ("sources", 14, 2),
            ("first chunk", 16, 8),
            ("records", 40, 8),
            ("indexes", 48, 4),
            ("chunks without a summary", 52, 4),
            ("records of a source", 56 + 8, 8),
            ("latest earlier chunk", 56 + 48, 8),
            ("first child or record", 56 + 56, 4),
            ("last child or record", 56 + 60, 4),
            ("child columns", 56 + 72, 4),
            ("bytes of a source", 56 + 80, 8),
        ] {
            places.place(
                &format!("{name} of a node of level {level}"),
                Owed::Rows,
                |world| world.forge_node(level, |node| claim(node, at, width)),
            )?;
        }
        for (name, at) in [("offset", 8), ("length", 12)] {
            places.place(
                &format!("{name} of an index block of level {level}"),
                Owed::Rows,
                |world| world.forge_node(level, |node| claim(node, indexes_of(node) + at, 4)),
            )?;
        }
        for (name, at, width) in [("count", 0, 8), ("greatest values", 42, 2), ("bins", 44, 4)] {
            places.place(
                &format!("{name} in an index block of level {level}"),
                Owed::Rows,
                |world| {
                    world.forge_node(level, |node| {
                        let offset = u32_at(node, indexes_of(node) + 8) as usize;
                        claim(node, offset + at, width);
                    })
                },
            )?;
        }
        for (name, at, width) in [("first chunk", 8, 8), ("node", 16, 8), ("length", 24, 4)] {
            places.place(
                &format!("{name} in an entry of level {level}"),
                Owed::Rows,
                |world| world.forge_entry(level, |entry| claim(entry, at, width)),
            )?;
        }
    }
    places.end()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Where the index table of a node begins that is not narrow.
fn indexes_of(node: &[u8]) -> usize {
    56 + 88 * usize::from(u16::from_le_bytes([node[14], node[15]]))
}

// G8
#[test]
fn narrow_nodes_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    const N: &str = "[[source.field]]\nname = 'n'\ntype = 'u64'\n";
    const MARK: &str = "[[source.field]]\nname = 'mark'\ntype = 'u64'\n";
    let place = tempfile::tempdir()?;
    let dir = place.path().join("many");
    let log = LogOptions {
        chunk_bytes: CHUNK_BYTES as u32,
        block_bytes: 64 << 10,
        ..LogOptions::default()
    };
    let options = WriterOptions {
        log,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&dir, options)?;
    let others = (0..40).map(|n| format!("[[source]]\nname = 's{n}'\n{N}"));
    let others: String = others.collect();
    let toml = format!("[[source]]\nname = 'r'\n{N}{MARK}{others}");
    let ids = writer.define_sources(&parse_sources(&toml)?)?;
    let (r, others) = ids.split_first().context("sources")?;
    for n in 0..RECORDS {
        writer.push(*r, &[n.to_le_bytes(), n.to_le_bytes()].concat())?;
        if n % 20 == 0 {
            for other in others {
                writer.push(*other, &n.to_le_bytes())?;
            }
        }
    }
    writer.close()?;
    let world = World::of(&dir)?;
    let mut places = Places {
        world: &world,
        wrong: Vec::new(),
    };
    for level in [0, 1] {
        for column in 0..16 {
            for (name, at) in [("offset", 16), ("width", 20)] {
                places.place(
                    &format!("{name} of column {column} of level {level}"),
                    Owed::Rows,
                    |world| world.forge_node(level, |node| claim(node, 56 + 24 * column + at, 4)),
                )?;
            }
        }
    }
    places.end()
}

// G8
#[test]
fn column_segments_that_claim_too_much_are_named_in_little_memory() -> Result<()> {
    const COLUMNS_LOG: u8 = 5;
    // Behind its header stand the checksum of each chunk, and whether anchors stand in it.
    const NUMBERS: usize = 24 + 5 * 16;
    let small = Small::in_columns(RECORDS)?;
    let world = World::of(&small.dir)?;
    let (path, sound) = world
        .files
        .iter()
        .find(|(path, _)| is_columns(path))
        .context("no columns")?;
    let head_bytes = u32_at(sound, 12) as usize;
    let forge = |change: &dyn Fn(&mut Vec<u8>)| -> Result<PathBuf> {
        let mut file = sound.clone();
        change(&mut file);
        let head = file.get(8..head_bytes).context("a head")?;
        let sum = checksum_for(&world.uuid, COLUMNS_LOG, 0, head);
        file[4..8].copy_from_slice(&sum.to_le_bytes());
        let end = file.len();
        let units = u32_at(sound, end - 12) as usize;
        let directory = end - 16 - 8 * (units + 1);
        let sum = checksum_for(&world.uuid, COLUMNS_LOG, 0, &file[directory..end - 16]);
        file[end - 16..end - 12].copy_from_slice(&sum.to_le_bytes());
        fs::write(path, file)?;
        Ok(path.clone())
    };
    let mut places = Places {
        world: &world,
        wrong: Vec::new(),
    };
    for (name, at, width) in [
        ("length", 8, 4),
        ("head", 12, 4),
        ("chunks", 17, 1),
        ("streams", 18, 2),
    ] {
        places.place(&format!("{name} of a unit"), Owed::Named, |_| {
            forge(&|file| claim(file, at, width))
        })?;
    }
    // Each number of the head is somewhere, and any byte of it may begin one.
    for at in NUMBERS..head_bytes - 9 {
        places.place(&format!("number at {at} of a head"), Owed::Named, |_| {
            forge(&|file| {
                file[at..at + 8].fill(0x80);
                file[at + 8] = 0x10;
            })
        })?;
    }
    let end = sound.len();
    places.place("number of units", Owed::Named, |_| {
        forge(&|file| claim(file, end - 12, 4))
    })?;
    for nth in 0..3 {
        places.place(&format!("begin of unit {nth}"), Owed::Named, |_| {
            forge(&|file| claim(file, end - 16 - 8 * 3 + 8 * nth, 8))
        })?;
    }
    places.end()
}

// G8
#[test]
fn staging_that_claims_too_much_is_named_in_little_memory() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("live");
    let config = "[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n";
    let daemon = Daemon::start(&dir, config)?;
    let rows = place.path().join("rows.csv");
    let lines: String = (0..RECORDS).map(|n| format!("{n},7\n")).collect();
    fs::write(&rows, format!("n,mark\n{lines}"))?;
    let [dir_text, rows] = [&dir, &rows].map(|path| path.to_str().unwrap());
    let (code, said) = in_little_memory(&["load", dir_text, "--source", "r", rows])?;
    ensure!(code == 0, "{said}");
    daemon.kill()?;
    let note: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("staging"))?)?;
    let staging = PathBuf::from(
        note.get("path")
            .and_then(|path| path.as_str())
            .context("a path")?,
    );
    let sound = fs::read(&staging)?;
    // A stop removes the name, and the note goes by the file.
    let name = staging.file_name().context("a name")?.to_string_lossy();
    let kept = staging.with_file_name(format!("kept-{name}"));
    fs::hard_link(&staging, &kept)?;
    let world = World::of(&dir)?;
    let mut wrong = Vec::new();
    let word = |at: usize| {
        let mut file = sound.clone();
        file[at..at + 8].copy_from_slice(&CLAIMED.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&(!CLAIMED).to_le_bytes());
        file
    };
    let mut forged: Vec<(String, Vec<u8>)> = Vec::new();
    for log in 0..3 {
        for (k, name) in ["tail", "head", "flushed", "durable", "begin"]
            .iter()
            .enumerate()
        {
            forged.push((
                format!("{name} of log {log}"),
                word(1024 + 512 * log + 64 * k),
            ));
        }
        let mut file = sound.clone();
        claim(&mut file, 40 + 8 * log, 8);
        forged.push((format!("block of log {log}"), file));
    }
    for (k, name) in [(5, "bytes of the catalog"), (6, "number of the table")] {
        forged.push((name.to_owned(), word(2560 + 64 * k)));
    }
    let number = u64::from_le_bytes(sound[2560 + 64 * 6..2560 + 64 * 6 + 8].try_into()?);
    let table = 4096 + (number % 2) as usize * 4096;
    let mut file = sound.clone();
    claim(&mut file, table + 4, 4);
    let sum = checksum_for(
        &world.uuid,
        LOSSES_LOG,
        number,
        &file[table + 4..table + LOSS_TABLE_BYTES],
    );
    file[table..table + 4].copy_from_slice(&sum.to_le_bytes());
    forged.push(("rows of pending losses".to_owned(), file));
    for (name, file) in forged {
        // The same file: the note names its inode.
        fs::write(&staging, &file)?;
        let out = dir.with_extension("parquet");
        let out = out.to_str().context("a path")?;
        for arguments in [
            &["check", dir_text][..],
            &["export", dir_text, "--source", "r", "--out", out],
            &["load", dir_text, "--source", "r", rows],
        ] {
            match in_little_memory(arguments) {
                Ok((1, said)) if !said.contains(dir_text) && !said.contains("/dev/shm") => {
                    wrong.push(format!("{name}: {said}"));
                }
                Ok(_) => {}
                Err(error) => wrong.push(format!("{name}: {error:#}")),
            }
        }
        world.mend()?;
        if !staging.exists() {
            fs::hard_link(&kept, &staging)?;
        }
    }
    fs::remove_file(&staging)?;
    fs::remove_file(&kept)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
