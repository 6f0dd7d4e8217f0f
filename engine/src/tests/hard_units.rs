//! Units that are hard to encode: the catalog changes within one, its chunks hold very many sources or one, records fill chunks, values are of every kind.
//! Whatever is cut off, each record that was promised comes back byte for byte.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::options;
use crate::check::check_logs;
use crate::ingest::{Writer, WriterOptions};
use crate::log::tests::simulated::{Boundary, Disk, Luck, Marks, loom};
use crate::log::{Durability, LogReader};
use crate::query::{Directory, Poll, raw_scan};
use crate::schema::{IndexDef, parse_sources};
use crate::testkit::Random;
use crate::types::{Address, SourceId, TimeRange};

/// The pushed records, in order.
type Sent = Vec<(Address, SourceId, Vec<u8>)>;

struct Story {
    disk: Disk,
    options: WriterOptions,
    writer: Option<Writer>,
    marks: Arc<Marks>,
    sent: Sent,
}

impl Story {
    fn begin(chunk_bytes: u64) -> Story {
        let mut options = options(Durability::Interval(std::time::Duration::from_millis(1)));
        options.log.chunk_bytes = chunk_bytes as u32;
        options.log.block_bytes = 16 * chunk_bytes;
        options.log.segment_bytes = [32 * chunk_bytes, 16 * chunk_bytes, 16 * chunk_bytes].into();
        let (disk, marks) = (Disk::new(), Arc::default());
        disk.remember(&marks);
        let mut story = Story {
            disk,
            options,
            writer: None,
            marks,
            sent: Vec::new(),
        };
        story.open();
        story
    }

    fn open(&mut self) {
        let writer = Writer::open_with(self.disk.storage(), &loom(), self.options.clone());
        self.writer = Some(writer.unwrap());
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().unwrap()
    }

    fn define(&mut self, toml: &str) -> SourceId {
        let defs = parse_sources(toml).unwrap();
        self.writer().define_sources(&defs).unwrap()[0]
    }

    fn push(&mut self, source: SourceId, payload: Vec<u8>) {
        let address = self.writer().push(source, &payload).unwrap();
        self.sent.push((address, source, payload));
    }

    /// Promises what was pushed, now and then durably.
    fn promise(&mut self, random: &mut Random) {
        let sent = self.sent.len() as u64;
        self.writer().sync().unwrap();
        self.marks.published.store(sent, Ordering::Release);
        if random.below(3) == 0 {
            self.writer().sync_durable().unwrap();
            self.marks.durable.store(sent, Ordering::Release);
        }
    }

    fn close(&mut self) {
        self.writer.take().unwrap().close().unwrap();
        let sent = self.sent.len() as u64;
        self.marks.published.store(sent, Ordering::Release);
        self.marks.durable.store(sent, Ordering::Release);
    }

    /// Ends the story, and crashes it at one in `every` of its operations.
    fn crash(mut self, every: u64, random: &mut Random) {
        self.close();
        let past = self.disk.past();
        assert_eq!(
            found(&self.disk, &self.sent, "after the stop"),
            self.sent.len()
        );
        assert!(past.len() as u64 > 8 * every, "{}", past.len());
        for boundary in past {
            if random.below(every) == 0 {
                self.crash_at(&boundary, random);
            }
        }
    }

    fn crash_at(&self, boundary: &Boundary, random: &mut Random) {
        let luck = [Luck::Nothing, Luck::Some(50), Luck::Everything][random.below(3) as usize];
        let (op, acknowledged) = (&boundary.op, boundary.acknowledged);
        for (disk, least, when) in [
            (
                boundary.kill(),
                acknowledged.published,
                format!("killed before {op:?}"),
            ),
            (
                boundary.lose_power(luck, random),
                acknowledged.durable,
                format!("{luck:?} before {op:?}"),
            ),
        ] {
            let there = found(&disk, &self.sent, &when);
            assert!(there as u64 >= least, "{when}: {there} of {least}");
            let writer = Writer::open_with(disk.storage(), &loom(), self.options.clone());
            writer.unwrap().close().unwrap();
            assert_eq!(
                found(&disk, &self.sent, &when),
                there,
                "{when}, after a start"
            );
        }
    }
}

/// How many records are there: the first ones of the list, whole, in a directory that is sound.
fn found(disk: &Disk, sent: &Sent, when: &str) -> usize {
    let reader = match LogReader::open_with(disk.storage(), &loom()) {
        Err(crate::Error::NotLoom { .. }) => return 0,
        reader => reader.unwrap(),
    };
    let report = check_logs(&reader, &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{when}: {:?}", report.damage);
    let snapshot = Directory::of(reader).snapshot().unwrap();
    let mut found = BTreeMap::new();
    for source in snapshot.catalog().sources() {
        let read = raw_scan(
            &snapshot,
            source.id,
            TimeRange::ALL,
            &Poll::never(),
            |record| {
                found.insert(record.address, (source.id, record.payload.to_vec()));
                ControlFlow::Continue(())
            },
        );
        read.unwrap();
    }
    for ((address, (source, payload)), sent) in found.iter().zip(sent) {
        let is_sent = (*address, *source) == (sent.0, sent.1) && *payload == sent.2;
        assert!(
            is_sent,
            "{when}: at {address} stands another record than was sent to {}",
            sent.0
        );
    }
    assert!(found.len() <= sent.len(), "{when}");
    found.len()
}

fn index(name: &str, value: &str) -> IndexDef {
    toml::from_str(&format!("name = '{name}'\nvalue = '{value}'")).unwrap()
}

/// The definition of a source with fields of one type.
fn source(name: &str, fields: usize, kind: &str) -> String {
    let field = |nth| format!("[[source.field]]\nname = 'f{nth}'\ntype = '{kind}'\n");
    let fields: String = (0..fields).map(field).collect();
    format!("[[source]]\nname = '{name}'\n{fields}")
}

// G1, G3
#[test]
fn sources_fields_labels_and_indexes_begin_within_a_unit_wherever_it_ends() {
    let mut random = Random(31);
    let mut story = Story::begin(4096);
    let mut labels = String::new();
    for step in 0..28u64 {
        let new = story.define(&source(&format!("new {step}"), 1, "u64"));
        let fields = 1 + step as usize / 2;
        let grows = story.define(&source("grows", fields, "u64"));
        if step % 4 == 1 {
            let def = index(&format!("of {step}"), &format!("f{}", fields - 1));
            story.writer().define_index(grows, &def).unwrap();
        }
        labels += &format!(
            "{}{step} = 'label {step}'",
            if step > 0 { ", " } else { "" }
        );
        let labelled = source("labelled", 1, "u8") + &format!("labels = {{ {labels} }}\n");
        let labelled = story.define(&labelled);
        for nth in 0..30u64 {
            let number = |field: u64| (step * 1000 + nth * (field + 1)).to_le_bytes();
            story.push(new, number(0).to_vec());
            story.push(grows, (0..fields as u64).flat_map(number).collect());
            story.push(labelled, vec![(nth % (step + 1)) as u8]);
        }
        story.promise(&mut random);
        if step % 9 == 8 {
            story.close();
            story.open();
        }
    }
    story.crash(12, &mut random);
}

// G1, G3
#[test]
fn a_unit_holds_very_many_sources_or_one() {
    let mut random = Random(32);
    for sources in [150, 1] {
        let mut story = Story::begin(4096);
        let ids: Vec<SourceId> = (0..sources)
            .map(|nth| {
                let fields = 1 + nth % 5;
                let kind = ["u64", "i16", "f64", "f32"][nth % 4];
                story.define(&source(&format!("source {nth}"), fields, kind))
            })
            .collect();
        for round in 0..4500 / sources {
            for (nth, id) in ids.iter().enumerate() {
                let bytes = (1 + nth % 5) * [8, 2, 8, 4][nth % 4];
                let payload = (0..bytes).map(|at| (round * (at + nth) / 7) as u8);
                story.push(*id, payload.collect());
            }
            if round % (1 + 700 / sources) == 0 {
                story.promise(&mut random);
            }
        }
        story.crash(12, &mut random);
    }
}

// G1, G3
#[test]
fn records_that_fill_a_chunk_and_long_texts_come_back() {
    let mut random = Random(33);
    let mut story = Story::begin(128 << 10);
    let text = story.define(&source("text", 1, "utf8"));
    let raw = story.define("[[source]]\nname = 'raw'\n");
    let short = story.define(&source("short", 1, "u64"));
    for nth in 0..60u64 {
        let letter = |at: u64| b'a' + ((at * (nth % 3) + nth) % 26) as u8;
        let mut payload = 60_000u16.to_le_bytes().to_vec();
        payload.extend((0..60_000).map(letter));
        story.push(text, payload);
        story.push(short, nth.to_le_bytes().to_vec());
        let bytes = [65_528, 0, 1, 65_527][nth as usize % 4];
        let any = (0..bytes).map(|at| match nth % 2 {
            0 => random.next() as u8,
            _ => at as u8,
        });
        let payload = any.collect();
        story.push(raw, payload);
        if nth % 6 == 0 {
            story.promise(&mut random);
        }
    }
    story.crash(12, &mut random);
}

/// Every kind of NaN among other floats, NULL with any bits behind it, and times of a source's own that jump.
// G1, G3
#[test]
fn floats_of_every_kind_and_times_that_jump_come_back_bit_for_bit() {
    let mut random = Random(34);
    let mut story = Story::begin(4096);
    let odd = "[[source]]\nname = 'odd'\ntime = 'own'\n\
               [[source.field]]\nname = 'double'\ntype = 'f64'\nnullable = true\n\
               [[source.field]]\nname = 'single'\ntype = 'f32'\n";
    let odd = story.define(odd);
    let def = index("double", "double");
    story.writer().define_index(odd, &def).unwrap();
    for nth in 0..4000u64 {
        let payload = u64::MAX >> (1 + random.below(52));
        let double = match nth % 8 {
            // Quiet and signalling ones, of both signs.
            0 => 0x7FF0_0000_0000_0000 | payload >> 12 | 1,
            1 => 0xFFF8_0000_0000_0000 | payload >> 13,
            2 => (-0.0f64).to_bits(),
            3 => f64::INFINITY.to_bits(),
            4 => f64::MIN_POSITIVE.to_bits() >> random.below(52),
            5 => random.next(),
            _ => (nth as f64 / 100.0).to_bits(),
        };
        let single = match nth % 5 {
            0 => 0x7F80_0001 | random.next() as u32 >> 9,
            1 => 0xFFC0_0000 | random.next() as u32 >> 10,
            2 => f32::NEG_INFINITY.to_bits(),
            3 => random.next() as u32,
            _ => (nth as f32 / 10.0).to_bits(),
        };
        let time = match nth % 50 {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 0,
            3 => -1,
            _ => 1_700_000_000_000_000_000 + nth as i64 * random.below(1 << 40) as i64,
        };
        let mut payload = time.to_le_bytes().to_vec();
        payload.push(u8::from(nth % 11 == 0));
        payload.extend(double.to_le_bytes());
        payload.extend(single.to_le_bytes());
        story.push(odd, payload);
        if nth % 300 == 0 {
            story.promise(&mut random);
        }
    }
    story.crash(12, &mut random);
}
