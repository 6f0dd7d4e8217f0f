//! Every page that a program reads from a disk is among the folios that are added to the page cache.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod shared;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use loom_probes::{Blockio, Clock, Pagecache};
use shared::opened;

const PAGES: u64 = 5000;
const PAGE_BYTES: u64 = 4096;

/// A file of so many pages on the disk that holds this executable, and nothing of it in the page cache.
fn cold_file() -> tempfile::NamedTempFile {
    let exe = std::env::current_exe().unwrap();
    let mut file = tempfile::NamedTempFile::new_in(exe.parent().unwrap()).unwrap();
    file.write_all(&vec![7; (PAGES * PAGE_BYTES) as usize])
        .unwrap();
    file.as_file().sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    file
}

/// Reads a file in a process of its own: this one's events are not recorded.
fn read_elsewhere(path: &std::path::Path) {
    let status = std::process::Command::new("cat")
        .arg(path)
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

// case Recording: events of the kernel
#[test]
fn the_pages_of_a_file_that_is_read_are_added_once_and_deleted_once() {
    let Some(mut probe) = opened(Pagecache::default().open()) else {
        return;
    };
    let file = cold_file();
    let inode = file.as_file().metadata().unwrap().ino();
    probe.arm().unwrap();
    read_elsewhere(file.path());
    let status = std::process::Command::new("dd")
        .arg(format!("if={}", file.path().display()))
        .args(["iflag=nocache", "count=0", "status=none"])
        .status();
    assert!(status.unwrap().success());
    let mut bytes = Vec::new();
    let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let mut pages = [0, 0];
    for payload in bytes.chunks(usize::from(Pagecache::PAYLOAD_BYTES)) {
        if payload[8..16] == inode.to_le_bytes() {
            let of_folio = u32::from_le_bytes(payload[24..28].try_into().unwrap());
            pages[usize::from(payload[52])] += u64::from(of_folio);
        }
    }
    let [deleted, added] = pages;
    assert_eq!(added, PAGES);
    assert_eq!(deleted, PAGES, "dd asks the kernel to forget the file");
}

#[test]
fn the_bytes_of_a_file_that_is_read_are_among_the_requests_of_its_disk() {
    let Some(mut probe) = opened(Blockio::default().open()) else {
        return;
    };
    let file = cold_file();
    probe.arm().unwrap();
    let mut read = Vec::new();
    File::open(file.path())
        .unwrap()
        .read_to_end(&mut read)
        .unwrap();
    let mut bytes = Vec::new();
    let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let reads = bytes
        .chunks(usize::from(Blockio::PAYLOAD_BYTES))
        .filter(|payload| payload[9] == 0)
        .map(|payload| u64::from(u32::from_le_bytes(payload[40..44].try_into().unwrap())));
    assert!(reads.sum::<u64>() >= PAGES * PAGE_BYTES, "{counts:?}");
}
