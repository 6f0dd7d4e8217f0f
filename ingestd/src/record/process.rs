//! Records processes into the source `process`.

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{EVENTS, Processes};

use super::Capture;
use super::drainer::{Kind, Probed, is_over};
use crate::protocol::Shape;

/// Attaches the programs.
pub fn process(filter: &Processes, source: String) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(Probed::new(
        filter.open()?,
        definition(source),
        "event, count(*), max(lived_ns)",
        Kind {
            shape: Shape::Framed,
            event: "event",
            end: "event",
            unpaired: "events that nobody began",
            // An event has no duration.
            under_way: |_| Ok(0),
            is_over: is_over(&filter.selection),
            least: None,
        },
    )))
}

/// The fields are in the order in which the payloads have them.
fn definition(name: String) -> SourceDef {
    let labels = EVENTS.map(|(number, name)| (i128::from(number), name.to_owned()));
    let nullable = |name, ty| FieldDef {
        nullable: true,
        ..FieldDef::new(name, ty)
    };
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef {
                labels: labels.into(),
                ..FieldDef::new("event", FieldType::U8)
            },
            FieldDef::new("pid", FieldType::U32),
            FieldDef::new("ppid", FieldType::U32),
            FieldDef::new("comm", FieldType::Char(16)),
            FieldDef::new("cgroup", FieldType::U64),
            nullable("lived_ns", FieldType::U64),
            nullable("exit_code", FieldType::U8),
            nullable("signal", FieldType::U8),
            nullable("path", FieldType::Utf8),
            nullable("args", FieldType::Utf8),
        ],
        indexes: vec![
            IndexDef::new("event", Some("event")),
            IndexDef::new("pid", Some("pid")),
            IndexDef::new("lived", Some("lived_ns")),
        ],
        ..SourceDef::new(name)
    }
}
