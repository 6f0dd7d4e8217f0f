//! Records changes of TCP connections into the source `tcp`.

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{TCP_EVENTS, TCP_STATES, Tcp};

use super::Capture;
use super::drainer::{Kind, Probed};
use crate::protocol::Shape;

/// Attaches the programs.
pub fn tcp(filter: &Tcp, source: String) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(Probed::new(
        filter.open()?,
        definition(source),
        "event, count(*), dst_addr, dst_port",
        Kind {
            shape: Shape::Framed,
            event: "event",
            end: "event",
            unpaired: "events that nobody began",
            // An event has no duration.
            under_way: |_| Ok(0),
            is_over: |_| Ok(None),
            least: None,
        },
    )))
}

/// The fields are in the order in which the payloads have them.
fn definition(name: String) -> SourceDef {
    let labelled = |name, labels: &[(u8, &str)]| FieldDef {
        labels: labels
            .iter()
            .map(|(number, name)| (i128::from(*number), (*name).to_owned()))
            .collect(),
        ..FieldDef::new(name, FieldType::U8)
    };
    let nullable = |field| FieldDef {
        nullable: true,
        ..field
    };
    let optional = |name, ty| nullable(FieldDef::new(name, ty));
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            labelled("event", &TCP_EVENTS),
            nullable(labelled("from_state", &TCP_STATES)),
            labelled("state", &TCP_STATES),
            optional("in_state_ns", FieldType::U64),
            optional("src_port", FieldType::U16),
            optional("dst_port", FieldType::U16),
            optional("pid", FieldType::U32),
            optional("comm", FieldType::Char(16)),
            optional("src_addr", FieldType::Utf8),
            optional("dst_addr", FieldType::Utf8),
            optional("cgroup", FieldType::U64),
        ],
        indexes: vec![
            IndexDef::new("event", Some("event")),
            IndexDef::new("in_state", Some("in_state_ns")),
        ],
        ..SourceDef::new(name)
    }
}
