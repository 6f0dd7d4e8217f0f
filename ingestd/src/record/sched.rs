//! Records the runs of threads into the source `sched`.

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{REASONS, Sched};

use super::Capture;
use super::drainer::{Kind, Probed, is_over};
use crate::protocol::Shape;

/// Attaches the programs.
pub fn sched(filter: &Sched, source: String) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(Probed::new(
        filter.open()?,
        definition(source),
        "comm, max(wait_ns), max(off_ns), sum(ran_ns)",
        Kind {
            shape: Shape::Fixed {
                record_bytes: Sched::PAYLOAD_BYTES,
            },
            event: "run",
            end: "stop",
            unpaired: "threads that already ran when the recording began",
            under_way: Sched::under_way,
            is_over: is_over(&filter.selection),
            least: Some(filter.off_min),
        },
    )))
}

/// The fields are in the order in which the programs write them.
fn definition(name: String) -> SourceDef {
    let labels = REASONS.map(|(number, name)| (i128::from(number), name.to_owned()));
    let number = |name| FieldDef::new(name, FieldType::U32);
    let span = |name| FieldDef::new(name, FieldType::U64);
    let nullable = |field| FieldDef {
        nullable: true,
        ..field
    };
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef {
                labels: labels.into(),
                ..FieldDef::new("why", FieldType::U8)
            },
            FieldDef::new("cpu", FieldType::U16),
            number("pid"),
            span("ran_ns"),
            nullable(span("off_ns")),
            nullable(span("wait_ns")),
            number("tid"),
            nullable(number("woken_by")),
            number("prev_tid"),
            number("next_tid"),
            FieldDef::new("comm", FieldType::Char(16)),
            span("cgroup"),
        ],
        indexes: vec![
            IndexDef::new("wait", Some("wait_ns")),
            IndexDef::new("off", Some("off_ns")),
            IndexDef::new("ran", Some("ran_ns")),
        ],
        ..SourceDef::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::drainer::tests::check_layout;
    use super::*;

    #[test]
    fn payloads_have_the_layout_that_the_source_declares() {
        check_layout(&definition("sched".to_owned()), Sched::PAYLOAD_BYTES);
    }
}
