//! Checks the capabilities of this process, and drops those that are not needed.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::ProbeError;

/// The capabilities that recording may need.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    Bpf,
    Perfmon,
    NetRaw,
    SysNice,
    Kill,
    /// Reads what the processes of other users have mapped.
    SysPtrace,
    /// Reads their files.
    DacReadSearch,
    /// Reads the addresses of the kernel's functions.
    Syslog,
}

impl Capability {
    pub const fn name(self) -> &'static str {
        match self {
            Capability::Bpf => "CAP_BPF",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Kill => "CAP_KILL",
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Capability::Syslog => "CAP_SYSLOG",
        }
    }

    const fn set(self) -> CapabilitySet {
        match self {
            Capability::Bpf => CapabilitySet::BPF,
            Capability::Perfmon => CapabilitySet::PERFMON,
            Capability::NetRaw => CapabilitySet::NET_RAW,
            Capability::SysNice => CapabilitySet::SYS_NICE,
            Capability::Kill => CapabilitySet::KILL,
            Capability::SysPtrace => CapabilitySet::SYS_PTRACE,
            Capability::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
            Capability::Syslog => CapabilitySet::SYSLOG,
        }
    }
}

/// Fails with the names of missing capabilities; `what` is the capture that needs them.
pub fn require(what: &str, wanted: &[Capability]) -> Result<(), ProbeError> {
    // If the kernel does not answer, loading the programs will show it.
    let Ok(sets) = capabilities(None) else {
        return Ok(());
    };
    let missing = wanted
        .iter()
        .filter(|one| !sets.effective.contains(one.set()));
    let missing: Vec<_> = missing.map(|one| one.name()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ProbeError::Capability {
        what: what.to_owned(),
        missing: missing.join(" and "),
    })
}

/// Drops all other capabilities of this thread and of threads that it starts from now on.
pub fn drop_all_except(kept: &[Capability]) -> std::io::Result<()> {
    let sets = capabilities(None)?;
    let mut wanted = CapabilitySet::empty();
    for one in kept {
        wanted |= one.set();
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.effective & wanted,
            permitted: sets.permitted & wanted,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
