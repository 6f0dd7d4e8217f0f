//! Records folios that are added to and deleted from the page cache, into the source `pagecache`.

use std::path::Path;

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{Cgroup, Pagecache};

use super::Capture;
use super::devices::with_names;
use super::drainer::{Kind, Probed};
use crate::protocol::Shape;

/// Attaches the programs. `dir` is the Loom directory.
pub fn pagecache(
    cgroup: Option<Cgroup>,
    source: String,
    dir: &Path,
) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(Probed::new(
        Pagecache { cgroup }.open()?,
        with_names(definition(source), dir)?,
        "comm, sum(pages), op",
        Kind {
            shape: Shape::Fixed {
                record_bytes: Pagecache::PAYLOAD_BYTES,
            },
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

/// The fields are in the order in which the programs write them. A folio has one or more `pages`, beginning with `page` of its file.
fn definition(name: String) -> SourceDef {
    let labels = [(0, "delete".to_owned()), (1, "add".to_owned())];
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef::new("inode", FieldType::U64),
            FieldDef::new("page", FieldType::U64),
            FieldDef::new("pages", FieldType::U32),
            FieldDef::new("device", FieldType::U32),
            FieldDef::new("pid", FieldType::U32),
            FieldDef::new("comm", FieldType::Char(16)),
            FieldDef {
                labels: labels.into(),
                ..FieldDef::new("op", FieldType::U8)
            },
            FieldDef::new("cgroup", FieldType::U64),
        ],
        indexes: vec![
            IndexDef::new("inode", Some("inode")),
            IndexDef {
                filter: Some("op = 'add'".to_owned()),
                ..IndexDef::new("added", Some("pages"))
            },
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
        let source = definition("pagecache".to_owned());
        check_layout(&source, Pagecache::PAYLOAD_BYTES);
    }
}
