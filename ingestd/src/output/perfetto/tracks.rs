//! The processes, threads, services and sources that are tracks, each described once, before its first event.

use std::collections::{HashMap, HashSet};

use crc_fast::{CrcAlgorithm, checksum};

use super::wire::{ProcessDescriptor, ThreadDescriptor, TracePacket, TrackDescriptor};

/// The uuids of tracks with a name have this bit, so that the others can be counted.
const NAMED: u64 = 1 << 63;

#[derive(Default)]
pub(super) struct Tracks {
    groups: HashMap<String, u64>,
    /// With whether their name is known.
    processes: HashMap<i64, (u64, bool)>,
    threads: HashMap<(i64, i64), u64>,
    /// The processes of threads, for sources without them.
    pids: HashMap<i64, i64>,
    taken: HashSet<u64>,
    alone: u64,
    /// The descriptions to write before the next event.
    pub new: Vec<TracePacket>,
}

impl Tracks {
    /// A track of the top with a name, which holds others.
    pub(super) fn group(&mut self, name: &str) -> u64 {
        if let Some(uuid) = self.groups.get(name) {
            return *uuid;
        }
        let uuid = self.named(&format!("group {name}"));
        self.describe(TrackDescriptor {
            uuid,
            name: Some(name.to_owned()),
            ..TrackDescriptor::default()
        });
        self.groups.insert(name.to_owned(), uuid);
        uuid
    }

    /// The process of a thread is that of its last record with one, or else the thread counts as one.
    pub(super) fn thread(&mut self, pid: Option<i64>, tid: i64, comm: Option<&str>) -> u64 {
        let pid = match pid {
            Some(pid) => {
                self.pids.insert(tid, pid);
                pid
            }
            None => self.pids.get(&tid).copied().unwrap_or(tid),
        };
        if let Some(uuid) = self.threads.get(&(pid, tid)) {
            return *uuid;
        }
        // The first thread has the name of its process.
        let name = (pid == tid).then_some(comm).flatten();
        let parent = self.process(pid, name);
        let uuid = self.named(&format!("thread {pid} {tid}"));
        self.describe(TrackDescriptor {
            uuid,
            parent_uuid: Some(parent),
            thread: Some(ThreadDescriptor {
                pid: Some(pid as i32),
                tid: Some(tid),
                thread_name: comm.map(str::to_owned),
            }),
            ..TrackDescriptor::default()
        });
        self.threads.insert((pid, tid), uuid);
        uuid
    }

    /// A process gets its name once that is known.
    pub(super) fn process(&mut self, pid: i64, name: Option<&str>) -> u64 {
        let uuid = match self.processes.get(&pid) {
            Some((uuid, is_named)) if *is_named || name.is_none() => return *uuid,
            Some((uuid, _)) => *uuid,
            None => self.named(&format!("process {pid}")),
        };
        self.describe(TrackDescriptor {
            uuid,
            process: Some(ProcessDescriptor {
                pid: Some(pid as i32),
                process_name: name.map(str::to_owned),
            }),
            ..TrackDescriptor::default()
        });
        self.processes.insert(pid, (uuid, name.is_some()));
        uuid
    }

    /// The uuid of a track from what tells it apart, the same in each export.
    pub(super) fn named(&mut self, path: &str) -> u64 {
        let mut uuid = NAMED | checksum(CrcAlgorithm::Crc64Nvme, path.as_bytes());
        while !self.taken.insert(uuid) {
            uuid = NAMED | uuid.wrapping_add(1);
        }
        uuid
    }

    /// The uuid of a track for one slice.
    pub(super) fn alone(&mut self) -> u64 {
        self.alone += 1;
        self.alone
    }

    pub(super) fn describe(&mut self, descriptor: TrackDescriptor) {
        self.new.push(TracePacket {
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
    }
}
