//! Records the paths of control groups of version 2: of those that exist, and of each that begins. None gets another
//! name.

use std::os::unix::fs::DirEntryExt;
use std::path::Path;

use aya::include_bytes_aligned;

use crate::framed::{self, take};
use crate::probe::{Hook, Payloads};
use crate::selection::roots;
use crate::{Probe, ProbeError};

/// The most bytes of a path, as in `bpf/cgroups.bpf.c`.
const PATH_BYTES: usize = 1024;
/// The longest payload of an event with its length. Replacing a byte that is not UTF-8 takes three.
const PAYLOAD_BYTES_MAX: usize = 32 + 3 * PATH_BYTES;

/// Selects all groups.
#[derive(Copy, Clone, Debug, Default)]
pub struct Cgroups;

impl Cgroups {
    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(self) -> Result<Probe, ProbeError> {
        Probe::open_sized(
            "'cgroup'",
            include_bytes_aligned!("../bpf/cgroups.o"),
            Payloads::Framed {
                bytes_max: PAYLOAD_BYTES_MAX,
                write: of_event,
            },
            &[],
            &[("ring", RING_BYTES)],
            &[("cgroup_mkdir", Hook::Raw("cgroup_mkdir"))],
        )
    }

    /// The payloads of the groups that exist.
    pub fn existing(now_ns: i64) -> Vec<u8> {
        let mut payloads = Vec::new();
        // A second mount shows the same groups.
        if let Some(root) = roots().first()
            && let Ok(meta) = std::fs::metadata(root)
        {
            let id = std::os::unix::fs::MetadataExt::ino(&meta);
            payload(now_ns, id, "/", &mut payloads);
            add_below(root, root, now_ns, &mut payloads);
        }
        payloads
    }
}

/// A machine starts few groups at a time.
const RING_BYTES: u32 = 1 << 20;

/// A group that ends meanwhile is omitted.
fn add_below(root: &Path, folder: &Path, now_ns: i64, out: &mut Vec<u8>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let below = entry.path();
        if let Ok(path) = below.strip_prefix(root) {
            let path = format!("/{}", path.to_string_lossy());
            payload(now_ns, entry.ino(), &path, out);
        }
        add_below(root, &below, now_ns, out);
    }
}

fn of_event(at_ns: i64, mut rest: &[u8], out: &mut Vec<u8>) {
    let id = u64::from_ne_bytes(take(&mut rest));
    let bytes = u32::from_ne_bytes(take(&mut rest)) as usize;
    let path = rest.get(..bytes);
    let path = path.expect("the program writes less than there is room for");
    payload(at_ns, id, &String::from_utf8_lossy(path), out);
}

/// Writes a payload of the source `cgroup` after its length.
fn payload(at_ns: i64, id: u64, path: &str, out: &mut Vec<u8>) {
    framed::payload(out, at_ns, [], &[&id.to_le_bytes()], [path]);
}
