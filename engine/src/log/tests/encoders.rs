//! Several encoders: they help each other, make what one makes, and fail as one does.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::*;
use crate::error::Error;
use crate::format::{ChunkBuilder, Template, UNIT_CHUNKS, UnitEncoder};
use crate::log::sync::locked;
use crate::types::{SourceId, Timestamp};

/// The units of a block.
const UNITS: u64 = 16;
const AT_ONCE: u64 = 10;

fn options(scene: &Scene, encoders: usize) -> LogOptions {
    LogOptions {
        block_bytes: UNITS * BLOCK,
        segment_bytes: [UNITS * BLOCK; 3].into(),
        encoders,
        ..scene.options.log.clone()
    }
}

fn start(scene: &Scene, encoders: usize, of: impl FnOnce(DirMeta) -> Box<dyn Encoder>) -> Logs {
    let opening = Opening::open(&scene.dir(), &options(scene, encoders)).unwrap();
    let encoder = of(*opening.meta());
    let zero = Address(0);
    opening.start(zero, zero, zero, b"", encoder).unwrap()
}

/// The payloads are plain bytes.
struct Columns(UnitEncoder);

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Columns")
    }
}

impl Encoder for Columns {
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>) {
        let template_of = |source, _| Template {
            source,
            pieces: Vec::new(),
            has_rest: true,
            fields: [].into(),
        };
        self.0.encode(first, chunks, template_of, out);
    }

    fn another(&self) -> Box<dyn Encoder> {
        Box::new(Columns(self.0.another()))
    }
}

/// Sealed chunks; the bytes of every third unit do not shrink.
fn chunks(uuid: &[u8; 16], from: Address, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = ChunkBuilder::new(CHUNK as u32);
    for at in (0..count).map(|nth| from + nth * CHUNK) {
        builder.clear();
        let mut random = Random(at.0);
        let is_mixed = at.0 / BLOCK % 3 == 2;
        for nth in 0..60 {
            let number = if is_mixed {
                random.next()
            } else {
                random.below(9)
            };
            let payload = [number; 6].map(|number| number.rotate_left(7 * nth as u32 % 64));
            let payload: Vec<u8> = payload.into_iter().flat_map(u64::to_le_bytes).collect();
            let time = Timestamp((at.0 + nth) as i64);
            builder.push(SourceId(1 + nth as u16 % 3), time, &payload);
        }
        bytes.extend_from_slice(builder.seal(uuid, at).0);
    }
    bytes
}

#[test]
fn any_number_of_encoders_makes_the_same_units() {
    for encoders in [1, 2, 4] {
        let scene = Scene::new();
        let columns = |meta: DirMeta| -> Box<dyn Encoder> {
            Box::new(Columns(UnitEncoder::new(meta.uuid, meta.chunk_bytes)))
        };
        let mut logs = start(&scene, encoders, columns);
        let meta = *logs.meta();
        let (mut appended, mut files) = (Vec::new(), vec![Vec::new(); 5]);
        while logs.end(LogKind::Records).0 < 5 * AT_ONCE * BLOCK {
            let at = logs.end(LogKind::Records);
            let bytes = chunks(&meta.uuid, at, AT_ONCE * UNIT_CHUNKS);
            assert_eq!(logs.append(LogKind::Records, &bytes).unwrap(), at);
            logs.sync().unwrap();
            for (nth, unit) in (0..).zip(bytes.chunks(BLOCK as usize)) {
                let first = at + nth * BLOCK;
                let file = &mut files[(first.0 / (UNITS * BLOCK)) as usize];
                columns(meta).encode(first, unit, file);
            }
            appended.extend(bytes);
        }
        let mut read = vec![0; appended.len()];
        let reader = scene.reader();
        reader.tails().unwrap();
        reader
            .read(LogKind::Records, Address(0), &mut read)
            .unwrap();
        assert!(read == appended, "{encoders} encoders");
        logs.close().unwrap();
        for (first, units) in (0..).step_by((UNITS * BLOCK) as usize).zip(files) {
            let path = scene.segment(LogKind::Records, first);
            let found = std::fs::read(path).unwrap_or_default();
            assert!(
                found.starts_with(&units),
                "{encoders} encoders, from {first}"
            );
        }
    }
}

/// The threads that met to make a unit each.
type Met = Arc<(Mutex<BTreeSet<String>>, Condvar)>;

/// An encoder that waits until so many threads have one at work.
#[derive(Clone, Debug)]
struct Meeting {
    raw: RawUnits,
    met: Met,
    wanted: usize,
    panics_in: Option<&'static str>,
}

impl Encoder for Meeting {
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>) {
        let own = thread::current().name().unwrap().to_owned();
        let (met, changed) = &*self.met;
        locked(met).insert(own.clone());
        changed.notify_all();
        let most = Duration::from_secs(20);
        let wait = changed.wait_timeout_while(locked(met), most, |met| met.len() < self.wanted);
        let has_met = !wait.unwrap().1.timed_out();
        assert!(has_met, "{own} is alone");
        assert!(self.panics_in != Some(&*own), "the encoder of {own} panics");
        self.raw.encode(first, chunks, out);
    }

    fn another(&self) -> Box<dyn Encoder> {
        Box::new(self.clone())
    }
}

/// Begins a log with so many encoders, which all meet, and appends a unit for each.
fn meet(scene: &Scene, encoders: usize, panics_in: Option<&'static str>) -> (Logs, Met) {
    let met = Met::default();
    let mut logs = start(scene, encoders, |meta| {
        Box::new(Meeting {
            raw: RawUnits(meta),
            met: Arc::clone(&met),
            wanted: encoders,
            panics_in,
        })
    });
    append(&mut logs, LogKind::Records, 2 * BLOCK as usize);
    (logs, met)
}

#[test]
fn a_second_encoder_helps_while_units_wait_and_one_alone_has_no_further_thread() {
    let further = ["loom-encoder", "loom-flusher"];
    for (encoders, threads) in [(1, further.split_at(1).1), (2, &further[..])] {
        let scene = Scene::new();
        let (mut logs, met) = meet(&scene, encoders, None);
        logs.sync().unwrap();
        assert!(locked(&met.0).iter().eq(threads));
        check_all(&scene.reader());
        logs.close().unwrap();
        check_all(&scene.reader());
    }
}

#[test]
fn an_encoder_that_panics_ends_the_flusher_on_whichever_thread_it_runs() {
    for (encoders, thread) in [
        (1, "loom-flusher"),
        (2, "loom-flusher"),
        (2, "loom-encoder"),
    ] {
        let scene = Scene::new();
        let (mut logs, _) = meet(&scene, encoders, Some(thread));
        let error = logs.sync().unwrap_err();
        assert!(
            matches!(&error, Error::Flusher(why) if why.contains("panicked")),
            "{error}"
        );
        assert!(logs.close().is_err());
        let opening = scene.open();
        let found = (opening.how(), opening.end(LogKind::Records));
        assert_eq!(found, (Recovered::Salvaged, Address(2 * BLOCK)));
        drop(resume(opening));
        check_all(&scene.reader());
    }
}
