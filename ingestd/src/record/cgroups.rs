//! Records the paths of control groups into the source `cgroup`, beside captures whose records have ids of groups: an id says nothing once its group has
//! ended.
//!
//! Each group is stored when it begins, and all that exist are stored every ten minutes, so that records keep the paths of their groups
//! when retention removes the oldest records.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::Cgroups;

use super::Capture;
use super::drainer::{Kind, Probed};
use super::outlet::Outlet;
use super::tally::Ending;
use crate::protocol::Shape;
use crate::wall_clock;

/// The interval at which all groups are stored.
const AGAIN: Duration = Duration::from_secs(600);

/// Attaches the programs.
pub fn cgroups() -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(Groups(Probed::new(
        Cgroups.open()?,
        definition(),
        "",
        Kind {
            shape: Shape::Framed,
            event: "group",
            end: "group",
            unpaired: "groups that nobody began",
            // A group is recorded when it begins.
            under_way: |_| Ok(0),
            is_over: |_| Ok(None),
            least: None,
        },
    ))))
}

struct Groups(Probed);

impl Capture for Groups {
    fn source(&self) -> &SourceDef {
        self.0.source()
    }

    fn query(&self, dir: &str) -> String {
        format!("FROM loom_cgroups({dir})")
    }

    fn accompanies(&self) -> bool {
        true
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.0.begin()
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let mut stored = None;
        let (ending, _) = self.0.drain(outlet, stop, |mut batch| {
            if stored.is_none_or(|at: Instant| at.elapsed() >= AGAIN) {
                stored = Some(Instant::now());
                batch.extend(Cgroups::existing(wall_clock().0));
            }
            Ok(batch)
        })?;
        Ok(ending)
    }
}

/// The fields are in the order in which the payloads have them.
fn definition() -> SourceDef {
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef::new("id", FieldType::U64),
            FieldDef::new("path", FieldType::Utf8),
        ],
        indexes: vec![IndexDef::new("id", Some("id"))],
        ..SourceDef::new("cgroup")
    }
}
