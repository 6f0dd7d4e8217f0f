//! Attaches programs in the kernel and drains their records. The files of the captures choose the programs and their filters.
//!
//! A probe is opened before anything is recorded, so that missing prerequisites are known before a directory changes; `arm` begins the recording.
//! After `disarm`, every record in the ring has been drained, and the counters no longer change.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::raw_trace_point::RawTracePointLink;
use aya::programs::trace_point::TracePointLink;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{Program, ProgramError, UProbe};
use aya::util::online_cpus;
use aya::{Ebpf, EbpfError, EbpfLoader};

use crate::capabilities::{Capability, require};
use crate::counted;
use crate::counts::{COUNTERS, Counts};
use crate::namespace::namespace;
use crate::symbols::Target;
use crate::{Clock, ProbeError};

/// The interval of draining. Each time wakes the threads behind it, which costs as much as many records.
pub const TICK: Duration = Duration::from_millis(20);
/// The limit of one drain.
pub const BATCH_BYTES: usize = 256 << 10;
/// How long `disarm` waits for records that programs were still writing.
const LAST_RECORDS: Duration = Duration::from_secs(1);

/// The place where a program is attached.
pub(crate) enum Hook<'a> {
    Raw(&'static str),
    Tracepoint(&'static str, &'static str),
    /// The beginnings or the returns of functions, or static probes, in these processes; in all if there is none.
    Functions(&'a Target, &'a [u32]),
    /// The ticks of a clock on each processor.
    Clock {
        period_ns: u64,
    },
}

/// The way from a program's records to payloads. A record begins with its time.
#[derive(Copy, Clone)]
pub(crate) enum Payloads {
    /// A record's first bytes are the payload.
    Fixed { bytes: usize },
    /// A payload is written for the time by the wall clock and the rest of a record, after its length (u16), and takes at most so many bytes.
    Framed {
        bytes_max: usize,
        write: fn(i64, &[u8], &mut Vec<u8>),
    },
}

impl Payloads {
    fn bytes_max(self) -> usize {
        match self {
            Payloads::Fixed { bytes } => bytes,
            Payloads::Framed { bytes_max, .. } => bytes_max,
        }
    }

    fn write(self, clock: Clock, record: &[u8], out: &mut Vec<u8>) {
        let record = match self {
            Payloads::Fixed { bytes } => record.get(..bytes),
            Payloads::Framed { .. } => Some(record),
        };
        let (at, rest) = record
            .and_then(|record| record.split_first_chunk())
            .expect("the programs write whole records");
        let wall_ns = clock.wall_ns(i64::from_ne_bytes(*at));
        match self {
            Payloads::Fixed { .. } => {
                out.extend_from_slice(&wall_ns.to_le_bytes());
                out.extend_from_slice(rest);
            }
            Payloads::Framed { write, .. } => write(wall_ns, rest, out),
        }
    }
}

/// Keeps a program attached.
#[expect(dead_code, reason = "a link detaches its program when it is dropped")]
enum Link {
    Raw(RawTracePointLink),
    Tracepoint(TracePointLink),
    Function(UProbeLink),
    Counted(OwnedFd),
    Clock(PerfEventLink),
}

/// Attached programs, and their maps.
pub struct Probe {
    ebpf: Ebpf,
    links: Vec<Link>,
    ring: RingBuf<MapData>,
    counters: PerCpuArray<MapData, u64>,
    armed: Array<MapData, u32>,
    least: Array<MapData, u64>,
    payloads: Payloads,
    drained: u64,
}

impl Probe {
    /// Loads an object with these globals, and attaches its programs. `what` names the capture in messages.
    pub(crate) fn open(
        what: &'static str,
        object: &[u8],
        payloads: Payloads,
        globals: &[(&'static str, Vec<u8>)],
        hooks: &[(&'static str, Hook<'_>)],
    ) -> Result<Probe, ProbeError> {
        Probe::open_sized(what, object, payloads, globals, &[], hooks)
    }

    /// The same, with other numbers of entries of these maps.
    pub(crate) fn open_sized(
        what: &'static str,
        object: &[u8],
        payloads: Payloads,
        globals: &[(&'static str, Vec<u8>)],
        sizes: &[(&'static str, u32)],
        hooks: &[(&'static str, Hook<'_>)],
    ) -> Result<Probe, ProbeError> {
        require(what, &[Capability::Bpf, Capability::Perfmon])?;
        let own_pid = std::process::id().to_ne_bytes();
        let [namespace_device, namespace_inode] = namespace().map(u64::to_ne_bytes);
        let mut loader = EbpfLoader::new();
        for (name, value) in globals {
            loader.override_global(name, value.as_slice(), true);
        }
        for (name, entries) in sizes {
            loader.map_max_entries(name, *entries);
        }
        loader.override_global("own_pid", &own_pid[..], false);
        loader.override_global("namespace_device", &namespace_device[..], false);
        loader.override_global("namespace_inode", &namespace_inode[..], false);
        let mut ebpf = loader.load(object).map_err(unloadable)?;
        let mut links = Vec::with_capacity(hooks.len());
        for (name, hook) in hooks {
            attach(&mut ebpf, name, hook, &mut links)?;
        }
        Ok(Probe {
            ring: RingBuf::try_from(map(&mut ebpf, "ring"))?,
            counters: PerCpuArray::try_from(map(&mut ebpf, "counters"))?,
            armed: Array::try_from(map(&mut ebpf, "armed"))?,
            least: Array::try_from(map(&mut ebpf, "least"))?,
            ebpf,
            links,
            payloads,
            drained: 0,
        })
    }

    /// A hash map of the programs.
    pub(crate) fn hash<K: aya::Pod, V: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<&mut MapData, K, V>, ProbeError> {
        let found = self.ebpf.map_mut(name);
        Ok(HashMap::try_from(found.expect("the object has its maps"))?)
    }

    /// The value of each processor in a map of the programs.
    pub(crate) fn per_cpu<V: aya::Pod>(&self, name: &'static str) -> Result<Vec<V>, ProbeError> {
        let found = self.ebpf.map(name).expect("the object has its maps");
        let values = PerCpuArray::try_from(found)?.get(&0, 0)?;
        Ok(values.iter().copied().collect())
    }

    /// Begins to record.
    pub fn arm(&mut self) -> Result<(), ProbeError> {
        Ok(self.armed.set(0, 1, 0)?)
    }

    /// From now on, events that take less time have no record, and count as sampled, if they are events that take time.
    pub fn record_from(&mut self, least: Duration) -> Result<(), ProbeError> {
        let least_ns = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        Ok(self.least.set(0, least_ns, 0)?)
    }

    /// Takes waiting payloads, with their times converted, until `batch` is full. Returns whether the ring is empty.
    pub fn drain(&mut self, clock: Clock, batch: &mut Vec<u8>) -> bool {
        self.take(clock, batch, BATCH_BYTES)
    }

    fn take(&mut self, clock: Clock, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        while self.payloads.bytes_max() <= bytes_max - out.len() {
            let Some(item) = self.ring.next() else {
                return true;
            };
            self.payloads.write(clock, &item, out);
            self.drained += 1;
        }
        false
    }

    /// Detaches the programs, and drains the remaining records.
    pub fn disarm(&mut self, clock: Clock, out: &mut Vec<u8>) -> Result<Counts, ProbeError> {
        self.armed.set(0, 0, 0)?;
        self.links.clear();
        // A program on another CPU may still be writing a record.
        let until = Instant::now() + LAST_RECORDS;
        loop {
            self.take(clock, out, usize::MAX);
            let counts = self.counts()?;
            if self.drained == counts.emitted || Instant::now() > until {
                return Ok(counts);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The current counters.
    pub fn counts(&self) -> Result<Counts, ProbeError> {
        let mut totals = [0_u64; COUNTERS];
        for (place, total) in (0..).zip(&mut totals) {
            *total = self.counters.get(&place, 0)?.iter().sum();
        }
        Ok(Counts::of(totals, self.missed()?))
    }

    /// The program runs that the kernel skipped.
    fn missed(&self) -> Result<u64, ProbeError> {
        self.sum("recursion_misses:")
    }

    /// The processor time of the programs; 0 where the kernel does not measure it, which `MeasuredPrograms` asks for.
    pub fn run_time(&self) -> Result<Duration, ProbeError> {
        Ok(Duration::from_nanos(self.sum("run_time_ns:")?))
    }

    /// The sum of a number that the kernel keeps for each program.
    fn sum(&self, key: &str) -> Result<u64, ProbeError> {
        let mut sum = 0;
        for (_, program) in self.ebpf.programs() {
            // A program without a hook is not loaded.
            let Ok(fd) = program.fd() else { continue };
            let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
            let info = std::fs::read_to_string(path).map_err(ProbeError::Counts)?;
            let line = info.lines().find_map(|line| line.strip_prefix(key));
            sum += line
                .and_then(|count| count.trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(sum)
    }
}

fn map(ebpf: &mut Ebpf, name: &str) -> Map {
    ebpf.take_map(name).expect("the object has its maps")
}

fn attach(
    ebpf: &mut Ebpf,
    name: &str,
    hook: &Hook<'_>,
    links: &mut Vec<Link>,
) -> Result<(), ProbeError> {
    let program = ebpf.program_mut(name).expect("the object has its programs");
    let link = match (program, hook) {
        (Program::RawTracePoint(program), Hook::Raw(tracepoint)) => {
            let link = program
                .load()
                .and_then(|()| program.attach(tracepoint))
                .and_then(|id| program.take_link(id));
            link.map(Link::Raw)
                .map_err(|error| unusable(name, &error))?
        }
        (Program::TracePoint(program), Hook::Tracepoint(category, tracepoint)) => {
            program.load().map_err(|error| unusable(name, &error))?;
            let link = program
                .attach(category, tracepoint)
                .and_then(|id| program.take_link(id));
            link.map(Link::Tracepoint)
                .map_err(|error| ProbeError::Tracefs {
                    tracepoint: format!("{category}/{tracepoint}"),
                    remedy: remedy(),
                    detail: chain(&error),
                })?
        }
        (Program::UProbe(program), Hook::Functions(target, pids)) => {
            program.load().map_err(|error| unusable(name, &error))?;
            return attach_to_functions(program, target, pids, links);
        }
        (Program::PerfEvent(program), Hook::Clock { period_ns }) => {
            program.load().map_err(|error| unusable(name, &error))?;
            return attach_to_clock(program, *period_ns, links);
        }
        _ => unreachable!("the program {name} is attached to another kind of hook than it is of"),
    };
    links.push(link);
    Ok(())
}

/// The program gets the number of its function as a cookie, and above it the function's place in the target.
fn attach_to_functions(
    program: &mut UProbe,
    target: &Target,
    pids: &[u32],
    links: &mut Vec<Link>,
) -> Result<(), ProbeError> {
    let mut scopes: Vec<_> = pids.iter().copied().map(NonZeroU32::new).collect();
    if scopes.is_empty() {
        scopes.push(None);
    }
    for (place, function) in (0_u64..).zip(&target.functions) {
        let cookie = place << 32 | u64::from(function.number);
        for pid in &scopes {
            let link = match function.counter {
                Some(counter) => {
                    let at = counted::Place {
                        path: &target.path,
                        offset: function.offset,
                        counter,
                    };
                    let fd = program.fd().map_err(|error| chain(&error));
                    let link = fd.and_then(|fd| {
                        let link =
                            counted::attach(fd.as_fd(), at, pid.map(NonZeroU32::get), cookie);
                        link.map_err(|error| chain(&error))
                    });
                    link.map(Link::Counted)
                }
                None => {
                    let point = UProbeAttachPoint {
                        location: UProbeAttachLocation::AbsoluteOffset(function.offset),
                        cookie: Some(cookie),
                    };
                    let scope = pid.map_or(UProbeScope::AllProcesses, UProbeScope::OneProcess);
                    let link = program
                        .attach(point, &target.path, scope)
                        .and_then(|id| program.take_link(id));
                    link.map(Link::Function).map_err(|error| chain(&error))
                }
            };
            links.push(link.map_err(|detail| target.error(&function.name, detail))?);
        }
    }
    Ok(())
}

/// A processor that comes online later has no ticks.
fn attach_to_clock(
    program: &mut PerfEvent,
    period_ns: u64,
    links: &mut Vec<Link>,
) -> Result<(), ProbeError> {
    let cpus = online_cpus().map_err(|(_, error)| ProbeError::Counts(error))?;
    for cpu in cpus {
        let link = program
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Period(period_ns),
                false,
            )
            .and_then(|id| program.take_link(id));
        let link = link.map_err(|error| ProbeError::Kernel {
            feature: "clock for samples",
            detail: chain(&error),
        })?;
        links.push(Link::Clock(link));
    }
    Ok(())
}

/// A remedy for an unreadable tracepoint of tracefs.
fn remedy() -> &'static str {
    match std::fs::read_dir("/sys/kernel/tracing/events") {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            "give the file CAP_DAC_READ_SEARCH with 'setcap', or open tracefs with 'mount -o remount,mode=755 /sys/kernel/tracing', as root"
        }
        _ => "mount tracefs with 'mount -t tracefs nodev /sys/kernel/tracing', as root",
    }
}

fn unloadable(error: EbpfError) -> ProbeError {
    match &error {
        EbpfError::MapError(MapError::CreateError { .. }) => ProbeError::Kernel {
            feature: "ring buffer for eBPF programs",
            detail: chain(&error),
        },
        _ => ProbeError::Kernel {
            feature: "eBPF that fits",
            detail: chain(&error),
        },
    }
}

fn unusable(program: &str, error: &ProgramError) -> ProbeError {
    ProbeError::Program {
        program: program.to_owned(),
        detail: chain(error),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text.lines().next().unwrap_or_default().to_owned()
}
