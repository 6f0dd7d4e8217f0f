//! The page cache, as the source `pagecache`: folios that are added to it and deleted from it.

use std::sync::atomic::AtomicBool;

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{Pagecache, Probe};

use super::drainer::{Kind, drain};
use super::outlet::Outlet;
use super::{Capture, Ending};

struct PagecacheCapture {
    probe: Probe,
    source: SourceDef,
}

/// Attaches the programs.
pub fn pagecache(source: String) -> anyhow::Result<Box<dyn Capture>> {
    Ok(Box::new(PagecacheCapture {
        probe: Pagecache.open()?,
        source: definition(source),
    }))
}

/// The fields stand as the programs write them. A folio has one or more `pages`, from `page` of its file on.
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

impl Capture for PagecacheCapture {
    fn source(&self) -> &SourceDef {
        &self.source
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT op, comm, sum(pages) FROM loom_scan('{dir}', '{}', last := INTERVAL 10 SECOND) GROUP BY ALL ORDER BY 3 DESC",
            self.source.name
        )
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let kind = Kind {
            payload_bytes: Pagecache::PAYLOAD_BYTES,
            // A folio that comes or goes is one event.
            under_way: |_| Ok(0),
            is_over: |_| Ok(None),
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
        let source = definition("pagecache".to_owned());
        source.validate().unwrap();
        let layout = Layout::new(source.time, &source.fields).unwrap();
        let payload = [0; Pagecache::PAYLOAD_BYTES as usize];
        layout.validate(&payload).unwrap();
    }
}
