//! Selects processes for the programs of `bpf/select.h`.

use std::path::{Path, PathBuf};

use crate::namespace::{process_of, require_own_proc};
use crate::{Probe, ProbeError};

/// The longest name of a task in the kernel, without the NUL.
pub const NAME_BYTES_MAX: usize = 15;
/// The reasons why a process is recorded, as in `bpf/select.h`.
const BY_PID: u32 = 1;
const BY_NAME: u32 = 2;

/// The processes to record. If no list has an entry, all are.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub pids: Vec<u32>,
    /// Names of processes or threads; all threads of such a process are recorded.
    pub names: Vec<String>,
    /// Also record the processes that a recorded one starts.
    pub follow: bool,
    /// Only threads in this cgroup, or in one below it.
    pub cgroup: Option<Cgroup>,
}

/// A control group of version 2.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    id: u64,
    /// The number of groups above it.
    level: u32,
}

impl Cgroup {
    /// Finds a group by its folder, or by its path below the root of the groups, as `/proc/PID/cgroup` shows it.
    pub fn find(path: &Path) -> Result<Cgroup, ProbeError> {
        let absent = |detail: String| ProbeError::Cgroup {
            path: path.to_owned(),
            detail,
        };
        let roots = roots();
        let folder = roots.iter().find_map(|root| {
            let below = root.join(path.strip_prefix("/").unwrap_or(path));
            let folder = if path.starts_with(root) {
                path.to_owned()
            } else {
                below
            };
            let parts = folder.strip_prefix(root).ok()?.components().count();
            folder.is_dir().then_some((folder, parts))
        });
        let Some((folder, parts)) = folder else {
            return Err(absent(match roots.first() {
                Some(root) => format!("it is not a folder below {}", root.display()),
                None => "no hierarchy of cgroup version 2 is mounted".to_owned(),
            }));
        };
        let meta = std::fs::metadata(&folder).map_err(|error| absent(error.to_string()))?;
        Ok(Cgroup {
            // The kernel gives the folder's inode the number of the group.
            id: std::os::unix::fs::MetadataExt::ino(&meta),
            level: u32::try_from(parts).expect("a path has few parts"),
        })
    }

    /// The values of the globals of `bpf/cgroup.h`.
    pub(crate) fn globals(only: Option<Cgroup>) -> [(&'static str, Vec<u8>); 2] {
        let Cgroup { id, level } = only.unwrap_or(Cgroup { id: 0, level: 0 });
        [
            ("only_cgroup", id.to_ne_bytes().to_vec()),
            ("only_cgroup_level", level.to_ne_bytes().to_vec()),
        ]
    }
}

/// The folders in which groups of version 2 are mounted.
pub(crate) fn roots() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    });
    mounts.collect()
}

impl Selection {
    /// Whether no more events can come once the selected processes have ended.
    pub fn ends(&self) -> bool {
        !self.pids.is_empty() && self.names.is_empty()
    }

    /// Checks what can be known before the programs are loaded.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        if self.pids.is_empty() && self.names.is_empty() {
            return Ok(());
        }
        require_own_proc()
    }

    /// The values of the programs' globals.
    pub(crate) fn globals(&self) -> [(&'static str, Vec<u8>); 5] {
        let flag = |set: bool| u32::from(set).to_ne_bytes().to_vec();
        let [cgroup, level] = Cgroup::globals(self.cgroup);
        [
            ("by_process", flag(!self.pids.is_empty())),
            ("by_name", flag(!self.names.is_empty())),
            ("follow", flag(self.follow)),
            cgroup,
            level,
        ]
    }

    /// Fills the programs' maps.
    pub(crate) fn fill(&self, probe: &mut Probe) -> Result<(), ProbeError> {
        let names: Vec<_> = self.names.iter().map(|name| kernel_name(name)).collect();
        let mut map = probe.hash::<[u8; 16], u32>("names")?;
        for name in &names {
            map.insert(name, 1, 0)?;
        }
        let mut processes = probe.hash::<u32, u32>("processes")?;
        for pid in processes_named(&names) {
            processes.insert(pid, BY_NAME, 0)?;
        }
        for pid in &self.pids {
            processes.insert(pid, BY_PID, 0)?;
            match process_of(*pid) {
                Some(process) if process == *pid => {}
                Some(process) => {
                    return Err(ProbeError::Thread {
                        tid: *pid,
                        pid: process,
                    });
                }
                None => return Err(ProbeError::NoProcess(*pid)),
            }
        }
        Ok(())
    }

    /// Whether all processes that were selected by id, and those that followed them, have ended.
    pub fn is_over(probe: &mut Probe) -> Result<bool, ProbeError> {
        Ok(probe.hash::<u32, u32>("processes")?.keys().next().is_none())
    }
}

/// A name in the kernel's form.
fn kernel_name(name: &str) -> [u8; 16] {
    let mut kept = [0; 16];
    for (place, byte) in kept.iter_mut().take(NAME_BYTES_MAX).zip(name.bytes()) {
        *place = byte;
    }
    kept
}

/// The processes that now have a thread with one of these names.
fn processes_named(names: &[[u8; 16]]) -> Vec<u32> {
    if names.is_empty() {
        return Vec::new();
    }
    let ids = |path: String| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let is_named = |path: String| {
        // A thread that has ended has no name.
        let name = std::fs::read_to_string(path).unwrap_or_default();
        names.contains(&kernel_name(name.trim_end_matches('\n')))
    };
    ids("/proc".to_owned())
        .filter(|pid| {
            ids(format!("/proc/{pid}/task"))
                .any(|tid| is_named(format!("/proc/{pid}/task/{tid}/comm")))
        })
        .collect()
}
