//! Records system calls into the source `syscall`.

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{NUMBER_UNKNOWN, Syscalls, number_of, numbers};

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
            least: Some(filter.latency_min),
        },
    )))
}

/// The calls that do nothing but wait: for an event, a lock, a time, a signal, a child, a client. An idle thread spends its life in them.
const WAITS: [&str; 24] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "futex",
    "futex_wait",
    "futex_waitv",
    "io_getevents",
    "io_pgetevents",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "restart_syscall",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "select",
    "semop",
    "semtimedop",
    "wait4",
    "waitid",
];

/// A filter of the calls that wait, or of the others. An architecture may not have all.
fn filter(is_wait: bool) -> Option<String> {
    let known = WAITS.iter().filter(|name| number_of(name).is_some());
    let names: Vec<_> = known.map(|name| format!("'{name}'")).collect();
    let not = if is_wait { "" } else { "NOT " };
    Some(format!("number {not}IN ({})", names.join(", ")))
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
            FieldDef::new("cgroup", FieldType::U64),
        ],
        indexes: vec![
            IndexDef {
                filter: filter(false),
                ..IndexDef::new("latency", Some("latency_ns"))
            },
            IndexDef {
                filter: filter(true),
                ..IndexDef::new("wait", Some("latency_ns"))
            },
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_call_that_waits_is_one_of_this_architecture() {
        for name in WAITS {
            assert!(loom_probes::number_of(name).is_some(), "{name}");
        }
    }
}
