//! Writes records as a trace that Perfetto opens: spans on tracks of their service, records with a thread on its track, others as counters. The records
//! come as the log has them; Perfetto sorts them by time.

mod drawing;
mod lanes;
mod tracks;
mod wire;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use arrow::array::RecordBatch;
use loom_engine::query::Poll;
use loom_engine::schema::Source;
use prost::Message;

use self::drawing::{Drawing, Place};
use self::lanes::Lanes;
use self::tracks::Tracks;
use self::wire::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, DebugAnnotationName, EventType,
    InternedData, Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use super::copy::Gap;
use super::out::Out;
use super::table::{self, Part};
use super::values::{Row, Value};

/// The bytes of a value that are shown.
const BYTES_SHOWN: usize = 64;
/// The packets that are gathered in memory before they are written.
const PACKETS: usize = 4096;

/// The records that were written, those that the format cannot hold, and those that could not be read.
#[derive(Default)]
pub(super) struct Written {
    pub rows: u64,
    /// Records before 1970.
    pub early: u64,
    pub gaps: Vec<Gap>,
}

/// # Errors
/// A read or a write that failed, an interruption. The file remains as far as it was written.
pub(super) fn write(
    sources: Vec<(&Source, Part)>,
    out: &Out,
    poll: &Poll<'_>,
) -> anyhow::Result<Written> {
    let failed = || format!("cannot write {out}");
    let mut file = TraceFile {
        file: BufWriter::new(out.open().with_context(failed)?),
        trace: Trace::default(),
        is_begun: false,
    };
    let (mut tracks, mut written) = (Tracks::default(), Written::default());
    let mut sources: Vec<_> = sources
        .into_iter()
        .map(|(source, part)| (source, part, Drawing::of(source)))
        .collect();
    // Sources with processes tell those of the threads in others.
    sources.sort_by_key(|(_, _, drawing)| !drawing.has_pid());
    for (nth, (source, part, drawing)) in sources.into_iter().enumerate() {
        let mut drawer = Drawer::new(source, drawing, nth as u32 + 1);
        drawer.begin(&mut file, &mut tracks).with_context(failed)?;
        let read = table::batches(source, vec![part], poll, |batch| {
            for row in 0..batch.num_rows() {
                match drawer.draw(batch, row, &mut tracks) {
                    Some(at) => file.begin(at),
                    None => written.early += 1,
                }
                file.add(tracks.new.drain(..).chain(drawer.events.drain(..)))
                    .with_context(failed)?;
            }
            Ok(())
        })?;
        written.rows += read.rows;
        written.gaps.extend(read.gaps);
    }
    file.finish(out.kept().is_some()).with_context(failed)?;
    written.rows -= written.early;
    Ok(written)
}

struct TraceFile {
    file: BufWriter<File>,
    trace: Trace,
    is_begun: bool,
}

impl TraceFile {
    /// Says at the first time that the clock of the trace is the wall clock.
    fn begin(&mut self, at: u64) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let clock = |clock_id| Clock {
            clock_id,
            timestamp: at,
        };
        self.trace.packet.push(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(wire::CLOCK_BOOTTIME), clock(wire::CLOCK_REALTIME)],
            }),
            ..TracePacket::default()
        });
    }

    fn add(&mut self, packets: impl Iterator<Item = TracePacket>) -> std::io::Result<()> {
        self.trace.packet.extend(packets);
        match self.trace.packet.len() < PACKETS {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.write_all(&self.trace.encode_to_vec())?;
        self.trace.packet.clear();
        Ok(())
    }

    fn finish(mut self, is_kept: bool) -> std::io::Result<()> {
        self.flush()?;
        self.file.flush()?;
        match is_kept {
            true => self.file.get_ref().sync_all(),
            false => Ok(()),
        }
    }
}

/// Draws the records of a source.
struct Drawer<'a> {
    source: &'a Source,
    drawing: Drawing,
    /// Names of fields hold within a sequence of packets, so each source has one.
    sequence: u32,
    /// By the uuid of the track above them and their name, if it is not the source's.
    lanes: HashMap<(Option<u64>, Option<String>), Lanes>,
    counters: Vec<u64>,
    events: Vec<TracePacket>,
}

impl<'a> Drawer<'a> {
    fn new(source: &'a Source, drawing: Drawing, sequence: u32) -> Drawer<'a> {
        Drawer {
            source,
            drawing,
            sequence,
            lanes: HashMap::new(),
            counters: Vec::new(),
            events: Vec::new(),
        }
    }

    fn begin(&mut self, file: &mut TraceFile, tracks: &mut Tracks) -> std::io::Result<()> {
        let name = &self.source.name;
        if let Place::Counters(counters) = &self.drawing.place {
            let parent = tracks.group(name);
            for counter in counters {
                let uuid = tracks.named(&format!("counter {} of {name}", counter.name));
                tracks.describe(TrackDescriptor {
                    uuid,
                    parent_uuid: Some(parent),
                    name: Some(counter.name.clone()),
                    counter: Some(CounterDescriptor {
                        unit: counter.unit.into(),
                    }),
                    ..TrackDescriptor::default()
                });
                self.counters.push(uuid);
            }
        }
        let fields = self.source.fields.iter().zip(1..);
        let names = fields.map(|(field, iid)| DebugAnnotationName {
            iid,
            name: field.name.clone(),
        });
        let first = TracePacket {
            trusted_packet_sequence_id: self.sequence,
            sequence_flags: wire::SEQ_INCREMENTAL_STATE_CLEARED,
            interned_data: Some(InternedData {
                debug_annotation_names: names.collect(),
            }),
            ..TracePacket::default()
        };
        file.add([first].into_iter().chain(tracks.new.drain(..)))
    }

    /// Draws a record. Returns its time, unless the format cannot hold it.
    fn draw(&mut self, batch: &RecordBatch, row: usize, tracks: &mut Tracks) -> Option<u64> {
        let row = Row { batch, row };
        let at = row.time()?;
        if let Place::Counters(_) = self.drawing.place {
            self.count(at, row);
            return Some(at);
        }
        let ends = self.ends(at, row);
        let track_uuid = self.track(ends, row, tracks);
        let mut event = TrackEvent {
            r#type: EventType::Instant.into(),
            track_uuid,
            name: Some(self.name(row)),
            debug_annotations: self.annotations(row),
            ..TrackEvent::default()
        };
        let Some((begin, end)) = ends else {
            self.event(at, event);
            return Some(at);
        };
        event.r#type = EventType::SliceBegin.into();
        self.event(begin, event);
        let end_of = TrackEvent {
            r#type: EventType::SliceEnd.into(),
            track_uuid,
            ..TrackEvent::default()
        };
        self.event(end, end_of);
        Some(at)
    }

    /// The begin and end of a record with a length, if the time can hold both.
    fn ends(&self, at: u64, row: Row<'_>) -> Option<(u64, u64)> {
        let length = u64::try_from(row.integer(self.drawing.length)?).ok()?;
        match self.drawing.is_span {
            true => Some((at, at.checked_add(length)?)),
            false => Some((at.checked_sub(length)?, at)),
        }
    }

    /// The track of a record.
    fn track(&mut self, ends: Option<(u64, u64)>, row: Row<'_>, tracks: &mut Tracks) -> u64 {
        let source = &self.source.name;
        let (parent, name) = match &self.drawing.place {
            Place::Service(service) => {
                let service = row.text(Some(*service)).unwrap_or("unknown service");
                (Some(tracks.group(service)), None)
            }
            Place::Thread { pid, tid, comm } => {
                let comm = row.text(*comm).filter(|comm| !comm.is_empty());
                let parent = match (row.integer(*pid), row.integer(*tid)) {
                    (pid, Some(tid)) => Some(tracks.thread(pid, tid, comm)),
                    (Some(pid), None) => Some(tracks.process(pid, comm)),
                    (None, None) => None,
                };
                (parent, None)
            }
            Place::Source(Some(split)) => {
                let name = row.text(Some(*split)).map(str::to_owned);
                (Some(tracks.group(source)), name)
            }
            Place::Source(None) | Place::Counters(_) => (None, None),
        };
        let lanes = self.lanes.entry((parent, name.clone())).or_default();
        let lane = match ends {
            None => Some(lanes.first()),
            Some((begin, end)) => lanes.place(begin, end),
        };
        let name = name.as_ref().unwrap_or(source);
        let uuid = match lane {
            None => tracks.alone(),
            Some(known) if *known > 0 => return *known,
            Some(new) => {
                *new = tracks.named(&format!("{name} of {source} in {parent:?}"));
                *new
            }
        };
        tracks.describe(TrackDescriptor {
            uuid,
            parent_uuid: parent,
            name: Some(name.clone()),
            ..TrackDescriptor::default()
        });
        uuid
    }

    fn name(&self, row: Row<'_>) -> String {
        let name = row.text(self.drawing.name);
        name.unwrap_or(&self.source.name).to_owned()
    }

    fn annotations(&self, row: Row<'_>) -> Vec<DebugAnnotation> {
        let fields = (0..self.source.fields.len()).zip(1..);
        let values = fields.map(|(field, iid)| Some(annotation(iid, &row.value(field)?)));
        values.flatten().collect()
    }

    fn count(&mut self, at: u64, row: Row<'_>) {
        let Place::Counters(counters) = &self.drawing.place else {
            return;
        };
        let values = counters.iter().zip(&self.counters);
        let values = values.filter_map(|(counter, uuid)| Some((row.value(counter.field)?, *uuid)));
        let events: Vec<TrackEvent> = values
            .map(|(value, track_uuid)| TrackEvent {
                r#type: EventType::Counter.into(),
                track_uuid,
                counter_value: value.integer(),
                double_counter_value: match value.integer() {
                    Some(_) => None,
                    None => value.double(),
                },
                ..TrackEvent::default()
            })
            .collect();
        for event in events {
            self.event(at, event);
        }
    }

    fn event(&mut self, at: u64, event: TrackEvent) {
        self.events.push(TracePacket {
            timestamp: Some(at),
            trusted_packet_sequence_id: self.sequence,
            sequence_flags: wire::SEQ_NEEDS_INCREMENTAL_STATE,
            track_event: Some(event),
            ..TracePacket::default()
        });
    }
}

/// A field of a record, below its event.
fn annotation(name_iid: u64, value: &Value<'_>) -> DebugAnnotation {
    let mut annotation = DebugAnnotation {
        name_iid,
        ..DebugAnnotation::default()
    };
    match *value {
        Value::Bool(value) => annotation.bool_value = Some(value),
        Value::Int(value) => annotation.int_value = Some(value),
        Value::Uint(value) => annotation.uint_value = Some(value),
        Value::Double(value) => annotation.double_value = Some(value),
        Value::Text(value) => annotation.string_value = Some(value.to_owned()),
        Value::Bytes(value) => annotation.string_value = Some(digits(value)),
    }
    annotation
}

fn digits(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len().min(BYTES_SHOWN));
    for byte in bytes.iter().take(BYTES_SHOWN) {
        let _ = write!(digits, "{byte:02x}");
    }
    if bytes.len() > BYTES_SHOWN {
        let _ = write!(digits, "… ({} bytes)", bytes.len());
    }
    digits
}
