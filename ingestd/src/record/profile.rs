//! Records samples of stacks into the source `profile`, and each distinct stack into the source `stack`.
//!
//! They are two captures: the first finds the names of functions, and hands new stacks to the second. It pushes samples only after their stacks are
//! visible, so that no query finds a sample without its stack.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flume::{Receiver, Sender, bounded};
use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{Capability, Profile, Stacks};

use super::Capture;
use super::drainer::{Kind, Probed, is_over};
use super::outlet::Outlet;
use super::tally::Ending;
use crate::protocol::Shape;
use crate::{counted, quoted};

/// Payloads of stacks, and the way to say that they are visible.
type NewStacks = (Vec<u8>, Sender<()>);

/// Attaches the programs. The second capture is of the stacks.
pub fn profile(
    filter: Profile,
    source: String,
    stacks: String,
) -> anyhow::Result<[Box<dyn Capture>; 2]> {
    let (sender, receiver) = bounded(1);
    let probed = Probed::new(
        filter.open()?,
        samples(source),
        "stack, count(*)",
        Kind {
            shape: Shape::Fixed {
                record_bytes: Stacks::SAMPLE_BYTES,
            },
            event: "wait",
            end: "sample",
            unpaired: "samples that nobody began",
            under_way: Profile::under_way,
            is_over: is_over(&filter.selection),
            least: filter.off_min,
        },
    );
    let stacks = stack(stacks);
    Ok([
        Box::new(Samples {
            probed,
            filter,
            stacks: stacks.name.clone(),
            sender,
        }),
        Box::new(NamedStacks {
            source: stacks,
            receiver,
        }),
    ])
}

/// The capture of the samples.
struct Samples {
    probed: Probed,
    filter: Profile,
    /// The source of the stacks.
    stacks: String,
    sender: Sender<NewStacks>,
}

impl Capture for Samples {
    fn source(&self) -> &SourceDef {
        self.probed.source()
    }

    fn query(&self, dir: &str) -> String {
        let [source, stacks] = [&self.source().name, &self.stacks].map(|name| quoted(name));
        format!(
            "FROM loom_flame({dir}, source := {source}, stacks := {stacks}, last := INTERVAL 10 SECOND)"
        )
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[
            Capability::Bpf,
            Capability::SysNice,
            Capability::SysPtrace,
            Capability::DacReadSearch,
            Capability::Syslog,
        ]
    }

    fn least(&self) -> Option<Duration> {
        self.probed.least()
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.probed.begin()
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let mut stacks = Stacks::default();
        let sender = self.sender;
        let (mut ending, probe) = self.probed.drain(outlet, stop, |batch| {
            let payloads = stacks.payloads(&batch);
            if !payloads.stacks.is_empty() {
                let (visible, wait) = bounded(1);
                // The other capture reports why it ended.
                if sender.send((payloads.stacks, visible)).is_ok() {
                    let _ = wait.recv();
                }
            }
            Ok(payloads.samples)
        })?;
        let mut note = |count: u64, event: &str, why: &str| {
            if count > 0 {
                ending
                    .notes
                    .push(format!("{} {why}", counted(count, event)));
            }
        };
        note(
            self.filter.late(&probe)?,
            "tick",
            "of the clock came too late, as when the machine stands still, and sampled nothing; not a loss",
        );
        note(
            stacks.cut(),
            "sample",
            "with more functions on its stack than fit: the outermost are '[cut]'",
        );
        note(
            stacks.unnamed(),
            "function",
            "without a name: of a file without symbols, or of a program that ended at once or is hidden from this user",
        );
        Ok(ending)
    }
}

/// The capture of the stacks.
struct NamedStacks {
    source: SourceDef,
    receiver: Receiver<NewStacks>,
}

impl Capture for NamedStacks {
    fn source(&self) -> &SourceDef {
        &self.source
    }

    fn query(&self, dir: &str) -> String {
        let source = quoted(&self.source.name);
        format!(
            "SELECT DISTINCT program, kernel FROM loom_scan({dir}, {source}, last := INTERVAL 10 SECOND)"
        )
    }

    /// It ends with the other one, which needs its stacks until then.
    fn run(self: Box<Self>, outlet: &Outlet, _: &AtomicBool) -> anyhow::Result<Ending> {
        for (payloads, visible) in self.receiver {
            outlet.push_at_once(Shape::Framed, &payloads)?;
            outlet.sync()?;
            // The other capture may have failed meanwhile.
            let _ = visible.send(());
        }
        Ok(Ending::default())
    }
}

/// The fields are in the order in which the payloads have them.
fn samples(name: String) -> SourceDef {
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef::new("stack", FieldType::U64),
            FieldDef {
                nullable: true,
                ..FieldDef::new("off_ns", FieldType::U64)
            },
            FieldDef::new("cgroup", FieldType::U64),
            FieldDef::new("pid", FieldType::U32),
            FieldDef::new("tid", FieldType::U32),
            FieldDef::new("cpu", FieldType::U16),
            FieldDef::new("comm", FieldType::Char(16)),
        ],
        indexes: vec![
            IndexDef::new("off", Some("off_ns")),
            IndexDef::new("pid", Some("pid")),
        ],
        ..SourceDef::new(name)
    }
}

fn stack(name: String) -> SourceDef {
    let text = |name| FieldDef {
        nullable: true,
        ..FieldDef::new(name, FieldType::Utf8)
    };
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef::new("stack", FieldType::U64),
            text("program"),
            text("kernel"),
        ],
        ..SourceDef::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::drainer::tests::check_layout;
    use super::*;

    #[test]
    fn payloads_have_the_layout_that_the_sources_declare() {
        check_layout(&samples("profile".to_owned()), Stacks::SAMPLE_BYTES);
        stack("stack".to_owned()).validate().unwrap();
    }
}
