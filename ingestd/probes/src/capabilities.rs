//! Capabilities of this process: which are missing, and giving up those that are not needed.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::ProbeError;

/// What recording may need.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    Bpf,
    Perfmon,
    NetRaw,
    SysNice,
    Kill,
}

impl Capability {
    pub const fn name(self) -> &'static str {
        match self {
            Capability::Bpf => "CAP_BPF",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Kill => "CAP_KILL",
        }
    }

    const fn set(self) -> CapabilitySet {
        match self {
            Capability::Bpf => CapabilitySet::BPF,
            Capability::Perfmon => CapabilitySet::PERFMON,
            Capability::NetRaw => CapabilitySet::NET_RAW,
            Capability::SysNice => CapabilitySet::SYS_NICE,
            Capability::Kill => CapabilitySet::KILL,
        }
    }
}

/// Fails with the names of those that are missing; `what` is who needs them.
pub fn require(what: &str, wanted: &[Capability]) -> Result<(), ProbeError> {
    // A kernel that does not answer decides when the programs are loaded.
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

/// Gives up all capabilities of this thread, and of those that it starts from now on, except these.
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
