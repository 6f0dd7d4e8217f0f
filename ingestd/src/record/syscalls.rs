//! System calls, as the source `syscall`.

use std::sync::atomic::AtomicBool;

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{Probe, Syscalls, numbers};

use super::drainer::{Kind, drain};
use super::outlet::Outlet;
use super::{Capture, Ending};

struct SyscallCapture {
    probe: Probe,
    /// Once these processes have ended, no call can come.
    only_by_pid: bool,
    source: SourceDef,
}

/// Attaches the programs.
pub fn syscalls(filter: &Syscalls, source: String) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(SyscallCapture {
        probe: filter.open()?,
        only_by_pid: !filter.pids.is_empty() && filter.names.is_empty(),
        source: definition(source),
    }))
}

/// The fields stand as the programs write them.
fn definition(name: String) -> SourceDef {
    let labels = numbers().map(|(number, name)| (i128::from(number), name.to_owned()));
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

impl Capture for SyscallCapture {
    fn source(&self) -> &SourceDef {
        &self.source
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT number, count(*), max(latency_ns) FROM loom_scan('{dir}', '{}', last := INTERVAL 10 SECOND) GROUP BY ALL ORDER BY 2 DESC",
            self.source.name
        )
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let kind = Kind {
            payload_bytes: Syscalls::PAYLOAD_BYTES,
            under_way: Syscalls::under_way,
            is_over: if self.only_by_pid {
                |probe| {
                    Ok(Syscalls::is_over(probe)?
                        .then_some("the processes that were to be recorded have ended"))
                }
            } else {
                |_| Ok(None)
            },
        };
        drain(self.probe, &kind, outlet, stop)
    }
}

#[cfg(test)]
mod tests {
    use loom_engine::schema::Layout;

    use super::*;

    #[test]
    fn payloads_have_the_layout_that_the_source_declares() {
        let source = definition("syscall".to_owned());
        source.validate().unwrap();
        let layout = Layout::new(source.time, &source.fields).unwrap();
        layout
            .validate(&[0; Syscalls::PAYLOAD_BYTES as usize])
            .unwrap();
        let number = source.fields.iter().find(|field| field.name == "number");
        let getppid = loom_probes::number_of("getppid").unwrap();
        let labelled = number.unwrap().label_value("getppid");
        assert_eq!(labelled, Some(i128::from(getppid)));
    }
}
