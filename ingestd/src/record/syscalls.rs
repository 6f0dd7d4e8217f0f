//! Records system calls into the source `syscall`.

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{NUMBER_UNKNOWN, Syscalls, numbers};

use super::Capture;
use super::drainer::{Kind, Probed, is_over};
use crate::protocol::Shape;

/// Attaches the programs.
pub fn syscalls(filter: &Syscalls, source: String) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(Probed::new(
        filter.open()?,
        definition(source),
        "number, count(*), max(latency_ns)",
        Kind {
            shape: Shape::Fixed {
                record_bytes: Syscalls::PAYLOAD_BYTES,
            },
            event: "call",
            end: "return",
            unpaired: "calls that began before the recording, and first returns of new threads",
            under_way: Syscalls::under_way,
            is_over: is_over(&filter.selection),
        },
    )))
}

/// The fields are in the order in which the programs write them.
fn definition(name: String) -> SourceDef {
    let labels = numbers().chain([(NUMBER_UNKNOWN, "unknown")]);
    let labels = labels.map(|(number, name)| (i128::from(number), name.to_owned()));
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef::new("latency_ns", FieldType::U64),
            FieldDef::new("result", FieldType::I64),
            FieldDef::new("arg0", FieldType::U64),
            FieldDef {
                labels: labels.collect(),
                ..FieldDef::new("number", FieldType::U16)
            },
            FieldDef::new("cpu", FieldType::U16),
            FieldDef::new("pid", FieldType::U32),
            FieldDef::new("tid", FieldType::U32),
            FieldDef::new("comm", FieldType::Char(16)),
        ],
        indexes: vec![
            IndexDef::new("latency", Some("latency_ns")),
            IndexDef::new("number", Some("number")),
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
        let source = definition("syscall".to_owned());
        check_layout(&source, Syscalls::PAYLOAD_BYTES);
        let number = source.fields.iter().find(|field| field.name == "number");
        let getppid = loom_probes::number_of("getppid").unwrap();
        let labelled = number.unwrap().label_value("getppid");
        assert_eq!(labelled, Some(i128::from(getppid)));
    }
}
