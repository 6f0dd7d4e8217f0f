//! `loom_losses`: the built-in source whose records list what is missing and why (FORMAT.md, *Loss records*).
//!
//! The daemon writes a record when it refuses or drops records, and queries read them. Encoder and decoder are both here, so they agree.
//! The decoder finds fields by name, because a later version may add some.

use std::collections::BTreeMap;

use super::catalog::Source;
use super::encoder::{FieldValue, PayloadEncoder};
use super::field::{FieldDef, FieldType};
use super::layout::Layout;
use super::source::SourceDef;
use crate::error::Result;
use crate::types::{Key, LOSSES_SOURCE, Timestamp};

/// The stage at which records were lost.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LossStage {
    /// Before the log: the input is not a record of its source.
    Input = 1,
    /// The log was full or failed.
    Log = 2,
    /// A daemon ended without a clean stop.
    Crash = 3,
    /// In the kernel, before the daemon read them.
    Kernel = 4,
}

/// The reason of a loss.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LossReason {
    /// The payload contradicts its source's layout.
    Malformed = 1,
    /// No chunk can hold it.
    TooLong = 2,
    /// The source was closed.
    SourceClosed = 3,
    /// Both staged blocks were full, and the source's policy is to drop.
    Overload = 4,
    /// Too little of the disk was free, and the policy is to refuse.
    DiskFull = 5,
    /// The log failed, or stopped before there was room.
    LogFailed = 6,
    /// Records that were refused or dropped before the host crashed; their number is unknown.
    Unknown = 7,
    /// No source has the id that the record names.
    NoSuchSource = 8,
    /// More causes came at once than the table holds, so these records have several.
    Several = 9,
    /// A kernel buffer was full.
    BufferFull = 10,
    /// A daemon was killed while it stored the record: the log may have it or not.
    DaemonKilled = 11,
    /// A recorder left the record out to save time.
    Sampled = 12,
}

impl LossStage {
    const ALL: [LossStage; 4] = [
        LossStage::Input,
        LossStage::Log,
        LossStage::Crash,
        LossStage::Kernel,
    ];

    pub const fn label(self) -> &'static str {
        match self {
            LossStage::Input => "input",
            LossStage::Log => "log",
            LossStage::Crash => "crash",
            LossStage::Kernel => "kernel",
        }
    }
}

impl LossReason {
    const ALL: [LossReason; 12] = [
        LossReason::Malformed,
        LossReason::TooLong,
        LossReason::SourceClosed,
        LossReason::Overload,
        LossReason::DiskFull,
        LossReason::LogFailed,
        LossReason::Unknown,
        LossReason::NoSuchSource,
        LossReason::Several,
        LossReason::BufferFull,
        LossReason::DaemonKilled,
        LossReason::Sampled,
    ];

    pub const fn label(self) -> &'static str {
        match self {
            LossReason::Malformed => "malformed",
            LossReason::TooLong => "too long",
            LossReason::SourceClosed => "source closed",
            LossReason::Overload => "overload",
            LossReason::DiskFull => "disk full",
            LossReason::LogFailed => "log failed",
            LossReason::Unknown => "unknown",
            LossReason::NoSuchSource => "no such source",
            LossReason::Several => "several causes",
            LossReason::BufferFull => "buffer full",
            LossReason::DaemonKilled => "daemon killed",
            LossReason::Sampled => "sampled by choice",
        }
    }

    /// The stage at which this reason occurs.
    pub const fn stage(self) -> LossStage {
        match self {
            LossReason::Malformed
            | LossReason::TooLong
            | LossReason::SourceClosed
            | LossReason::NoSuchSource => LossStage::Input,
            LossReason::Overload
            | LossReason::DiskFull
            | LossReason::LogFailed
            | LossReason::Several => LossStage::Log,
            LossReason::Unknown | LossReason::DaemonKilled => LossStage::Crash,
            LossReason::BufferFull | LossReason::Sampled => LossStage::Kernel,
        }
    }

    /// The reason with a number; `None` if this version does not know it.
    pub fn of_number(number: u8) -> Option<LossReason> {
        LossReason::ALL
            .into_iter()
            .find(|reason| *reason as u8 == number)
    }
}

/// A record of the source, to be written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LossRecord<'a> {
    /// The arrivals of the first and the last lost record.
    pub from: Timestamp,
    pub to: Timestamp,
    /// `None` if records of any source may be missing.
    pub source: Option<&'a str>,
    pub reason: LossReason,
    /// `None` if the number is unknown.
    pub records: Option<u64>,
    /// Payload bytes.
    pub bytes: Option<u64>,
    /// The error of the last refused record.
    pub detail: Option<&'a str>,
}

const FROM: &str = "from_ts";
const TO: &str = "to_ts";
const STAGE: &str = "stage";
const REASON: &str = "reason";
const RECORDS: &str = "records";
const BYTES: &str = "bytes";
/// SQL adds a column `source` to every source, so no field can have that name.
const SOURCE: &str = "source_name";
const DETAIL: &str = "detail";

/// The definition of the source.
pub fn losses_source() -> SourceDef {
    let labelled = |name, labels: BTreeMap<i128, String>| FieldDef {
        labels,
        ..FieldDef::new(name, FieldType::U8)
    };
    let stages = LossStage::ALL.map(|stage| (stage as i128, stage.label().to_owned()));
    let reasons = LossReason::ALL.map(|reason| (reason as i128, reason.label().to_owned()));
    SourceDef {
        fields: vec![
            FieldDef::new(FROM, FieldType::TimestampNs),
            FieldDef::new(TO, FieldType::TimestampNs),
            labelled(STAGE, stages.into()),
            labelled(REASON, reasons.into()),
            FieldDef::nullable(RECORDS, FieldType::U64),
            FieldDef::nullable(BYTES, FieldType::U64),
            FieldDef::nullable(SOURCE, FieldType::Utf8),
            FieldDef::nullable(DETAIL, FieldType::Utf8),
        ],
        ..SourceDef::new(LOSSES_SOURCE)
    }
}

/// Encodes records of the source.
#[derive(Debug)]
pub struct LossEncoder(PayloadEncoder);

impl LossEncoder {
    pub fn new() -> Result<LossEncoder> {
        let def = losses_source();
        Ok(LossEncoder(PayloadEncoder::new(def.time, &def.fields)?))
    }

    /// Appends the payload of a record to `out`.
    pub fn encode(&mut self, loss: &LossRecord<'_>, out: &mut Vec<u8>) -> Result<()> {
        let number = |number: Option<u64>| number.map_or(FieldValue::Null, FieldValue::U64);
        let values = [
            FieldValue::I64(loss.from.0),
            FieldValue::I64(loss.to.0),
            FieldValue::U64(loss.reason.stage() as u64),
            FieldValue::U64(loss.reason as u64),
            number(loss.records),
            number(loss.bytes),
            text(loss.source),
            text(loss.detail),
        ];
        self.0.encode(None, &values, out)
    }
}

fn text(text: Option<&str>) -> FieldValue<'_> {
    text.map_or(FieldValue::Null, |text| FieldValue::Bytes(text.as_bytes()))
}

/// Reads records of the source from any version. A field that a record does not have reads as unknown.
pub struct LossDecoder<'a> {
    source: &'a Source,
    places: [Option<usize>; 7],
}

/// A record as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LossText {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub source: Option<String>,
    pub stage: String,
    pub reason: String,
    pub records: Option<u64>,
    pub bytes: Option<u64>,
}

impl<'a> LossDecoder<'a> {
    pub fn new(source: &'a Source) -> LossDecoder<'a> {
        let place = |name| source.fields.iter().position(|field| field.name == name);
        let places = [FROM, TO, STAGE, REASON, RECORDS, BYTES, SOURCE].map(place);
        LossDecoder { source, places }
    }

    pub fn decode(&self, layout: &Layout, payload: &[u8]) -> LossText {
        let [from, to, stage, reason, records, bytes, source] = self.places;
        let key = |place: Option<usize>| layout.key(place?, payload);
        LossText {
            from: key(from).map(|key| Timestamp(key.to_i64())),
            to: key(to).map(|key| Timestamp(key.to_i64())),
            stage: self.label(stage, key(stage)),
            reason: self.label(reason, key(reason)),
            records: key(records).map(|key| key.to_u64()),
            bytes: key(bytes).map(|key| key.to_u64()),
            source: source
                .and_then(|field| layout.bytes(field, payload))
                .map(|name| String::from_utf8_lossy(name).into_owned()),
        }
    }

    /// The label of a number, or the number itself if a later version wrote one without a label here.
    fn label(&self, place: Option<usize>, key: Option<Key>) -> String {
        let Some(number) = key.map(Key::to_u64) else {
            return "unknown".to_owned();
        };
        let field = place.and_then(|field| self.source.fields.get(field));
        let label = field.and_then(|field| field.labels.get(&i128::from(number)));
        label.cloned().unwrap_or_else(|| number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Catalog;
    use crate::types::Address;

    #[test]
    fn a_loss_is_read_back_in_words() {
        let mut catalog = Catalog::new();
        let (id, _) = catalog
            .define_builtin_source(&losses_source(), Address::ZERO)
            .unwrap();
        let source = catalog.source(id).unwrap();
        let mut payload = Vec::new();
        let loss = LossRecord {
            from: Timestamp(-5),
            to: Timestamp(7),
            source: Some("redis_request"),
            reason: LossReason::Overload,
            records: Some(u64::MAX),
            bytes: None,
            detail: None,
        };
        let mut encoder = LossEncoder::new().unwrap();
        encoder.encode(&loss, &mut payload).unwrap();
        let text = LossDecoder::new(source).decode(source.layout(), &payload);
        assert_eq!((text.from, text.to), (Some(loss.from), Some(loss.to)));
        assert_eq!(text.source.as_deref(), Some("redis_request"));
        assert_eq!(
            (text.stage.as_str(), text.reason.as_str()),
            ("log", "overload")
        );
        assert_eq!((text.records, text.bytes), (Some(u64::MAX), None));
    }

    #[test]
    fn foreign_bytes_read_as_unknown() {
        let mut catalog = Catalog::new();
        let (id, _) = catalog
            .define_builtin_source(&losses_source(), Address::ZERO)
            .unwrap();
        let source = catalog.source(id).unwrap();
        let text = LossDecoder::new(source).decode(source.layout(), &[0xFF; 3]);
        assert_eq!((text.stage.as_str(), text.records), ("unknown", None));
        let mut payload = vec![0; source.layout().fixed_bytes()];
        // Stage and reason follow the null bits and the two times.
        payload[17] = 200;
        let text = LossDecoder::new(source).decode(source.layout(), &payload);
        assert_eq!((text.stage.as_str(), text.reason.as_str()), ("200", "0"));
    }
}
