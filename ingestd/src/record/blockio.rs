//! Records requests to block devices into the source `blockio`.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, ensure};
use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use loom_probes::{Blockio, Cgroup, OPERATIONS};

use super::devices::with_names;
use super::drainer::{Kind, Probed};
use super::{Capture, names_in};
use crate::protocol::Shape;

/// Attaches the programs, for one device (such as `/dev/sda`) and one cgroup, or for all. `dir` is the Loom directory.
pub fn blockio(
    device: Option<&Path>,
    cgroup: Option<Cgroup>,
    source: String,
    dir: &Path,
) -> anyhow::Result<Box<dyn Capture>> {
    let device = device.map(numbers_of).transpose()?;
    Ok(Box::new(Probed::new(
        Blockio { device, cgroup }.open()?,
        with_names(definition(source), dir)?,
        "op, count(*), sum(bytes), max(latency_ns)",
        Kind {
            shape: Shape::Fixed {
                record_bytes: Blockio::PAYLOAD_BYTES,
            },
            event: "request",
            end: "completion",
            unpaired: "requests that were issued before the recording, and flushes, which the kernel issues unseen",
            under_way: Blockio::under_way,
            is_over: |_| Ok(None),
            least: None,
        },
    )))
}

/// The major and minor number of a device. A partition is refused, because its requests belong to its disk.
fn numbers_of(device: &Path) -> anyhow::Result<(u32, u32)> {
    let shown = device.display();
    let in_dev = Path::new("/dev").join(device);
    ensure!(
        device.exists() || !in_dev.exists(),
        "cannot record requests of '{shown}': no such file; give '{}'",
        in_dev.display()
    );
    ensure!(
        device.exists(),
        "cannot record requests of '{shown}': no such file; give a disk in /dev, of {}",
        names_in("/sys/block")
    );
    let meta = std::fs::metadata(device)
        .with_context(|| format!("cannot record requests of '{shown}'"))?;
    ensure!(
        meta.file_type().is_block_device(),
        "cannot record requests of '{shown}': it is not a block device; give one such as /dev/sda, or omit --device"
    );
    let number = std::os::unix::fs::MetadataExt::rdev(&meta);
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let partition = format!("/sys/dev/block/{major}:{minor}/partition");
    ensure!(
        !Path::new(&partition).exists(),
        "cannot record requests of '{shown}': it is a partition, and requests are of the whole disk; give the disk"
    );
    Ok((major, minor))
}

/// The fields are in the order in which the programs write them.
fn definition(name: String) -> SourceDef {
    let labels = OPERATIONS.map(|(number, name)| (i128::from(number), name.to_owned()));
    SourceDef {
        time: TimeKind::Own,
        fields: vec![
            FieldDef {
                labels: labels.into(),
                ..FieldDef::new("op", FieldType::U8)
            },
            FieldDef::new("cpu", FieldType::U16),
            FieldDef::new("device", FieldType::U32),
            FieldDef::new("latency_ns", FieldType::U64),
            FieldDef {
                nullable: true,
                ..FieldDef::new("queue_ns", FieldType::U64)
            },
            FieldDef::new("sector", FieldType::U64),
            FieldDef::new("bytes", FieldType::U32),
            FieldDef::new("pid", FieldType::U32),
            FieldDef::new("tid", FieldType::U32),
            FieldDef::new("comm", FieldType::Char(16)),
            FieldDef::new("cgroup", FieldType::U64),
        ],
        indexes: vec![
            IndexDef::new("latency", Some("latency_ns")),
            IndexDef::new("queue", Some("queue_ns")),
            IndexDef::new("bytes", Some("bytes")),
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
        let source = definition("blockio".to_owned());
        check_layout(&source, Blockio::PAYLOAD_BYTES);
    }

    #[test]
    fn what_is_no_block_device_is_named() {
        let refused = |path: &str| format!("{:#}", numbers_of(path.as_ref()).unwrap_err());
        assert!(refused("/dev/null").contains("'/dev/null': it is not a block device"));
        let disks = names_in("/sys/block");
        assert!(
            refused("/dev/nosuch")
                .contains(&format!("no such file; give a disk in /dev, of {disks}"))
        );
        assert!(refused("null").contains("give '/dev/null'"));
    }
}
