//! Records calls of functions of programs and libraries, one record at each return, and hits of their static probes.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use aya::include_bytes_aligned;

use crate::operand::OPERAND_BYTES;
use crate::probe::{Hook, Payloads};
use crate::release::{Release, require_release};
use crate::{FUNCTIONS_MAX, FoundFunction, Probe, ProbeError, Selection, Target};

/// The bytes of a payload without values: the own time and the fields of each hit of a static probe.
const FIXED_BYTES: u16 = 46;
/// The bytes of a call's latency.
const LATENCY_BYTES: u16 = 8;
/// The most bytes of a text, with a NUL.
const TEXT_BYTES: u16 = 64;
/// The most arguments. Their null bits and the one of the result fill a byte.
pub const ARGS_MAX: usize = 7;
/// The kernel attaches a program once for each function and process; more processes than this are selected by the programs alone.
const PIDS_MAX: usize = 4;
/// The kernel lists its uprobes here.
const UPROBES: &str = "/sys/bus/event_source/devices/uprobe";

/// The offsets in the kernel's `pt_regs`, and the convention of calls.
struct Machine {
    args: &'static [u32],
    result: u32,
    stack: u32,
    /// The register with the return address; 0 if the stack has it.
    link: u32,
    /// The bytes that a return takes from the stack.
    return_bytes: u32,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: Machine = Machine {
    args: &[112, 104, 96, 88, 72, 64],
    result: 80,
    stack: 152,
    link: 0,
    return_bytes: 8,
};
#[cfg(target_arch = "aarch64")]
const MACHINE: Machine = Machine {
    args: &[0, 8, 16, 24, 32, 40, 48, 56],
    result: 0,
    stack: 248,
    link: 240,
    return_bytes: 0,
};

/// The type of an argument or a result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    Pointer,
    /// The address of a text that ends with a NUL.
    Text,
}

const TYPES: [(&str, ValueType); 11] = [
    ("i8", ValueType::I8),
    ("i16", ValueType::I16),
    ("i32", ValueType::I32),
    ("i64", ValueType::I64),
    ("u8", ValueType::U8),
    ("u16", ValueType::U16),
    ("u32", ValueType::U32),
    ("u64", ValueType::U64),
    ("bool", ValueType::Bool),
    ("ptr", ValueType::Pointer),
    ("str", ValueType::Text),
];

impl ValueType {
    pub const fn bytes(self) -> u16 {
        match self {
            ValueType::I8 | ValueType::U8 | ValueType::Bool => 1,
            ValueType::I16 | ValueType::U16 => 2,
            ValueType::I32 | ValueType::U32 => 4,
            ValueType::I64 | ValueType::U64 | ValueType::Pointer => 8,
            ValueType::Text => TEXT_BYTES,
        }
    }
}

impl FromStr for ValueType {
    type Err = String;

    fn from_str(text: &str) -> Result<ValueType, String> {
        let found = TYPES.iter().find(|(name, _)| *name == text);
        found.map(|(_, ty)| *ty).ok_or_else(|| {
            let names = TYPES.map(|(name, _)| name).join(", ");
            format!("'{text}' is not a type; use one of {names}")
        })
    }
}

/// An argument to record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its place from 0: among all arguments of a static probe, or among those of a function that are not floating-point numbers.
    pub place: u8,
    pub ty: ValueType,
}

/// Selects the calls, or the hits of static probes, to record.
#[derive(Clone, Debug)]
pub struct Function {
    pub target: Target,
    pub selection: Selection,
    pub latency_min: Duration,
    /// At most `ARGS_MAX`.
    pub args: Vec<Argument>,
    /// Hits of static probes have none, and no latency.
    pub result: Option<ValueType>,
}

impl Function {
    /// The length of a payload, with the own time.
    pub fn payload_bytes(&self) -> u16 {
        let has_values = !self.args.is_empty() || self.result.is_some();
        let result_bytes = self.result.map_or(0, ValueType::bytes);
        let latency_bytes = if self.target.is_static {
            0
        } else {
            LATENCY_BYTES
        };
        FIXED_BYTES + latency_bytes + u16::from(has_values) + self.args_bytes() + result_bytes
    }

    /// All arguments of the static probes with the types that the file says; none of functions.
    pub fn declared(target: &Target) -> Vec<Argument> {
        let probes = target.functions.iter();
        let count = probes.clone().map(|probe| probe.arguments.len()).max();
        let declared = |place: u8| {
            let found = probes
                .clone()
                .filter_map(|probe| probe.arguments.get(usize::from(place)));
            let (mut signed, mut unsigned) = (0, 0);
            // An argument that cannot be read is refused when the programs are attached.
            for operand in found.flatten() {
                let bytes = match operand.is_signed {
                    true => &mut signed,
                    false => &mut unsigned,
                };
                *bytes = operand.bytes.max(*bytes);
            }
            // A signed number that holds an unsigned one too is wider.
            let ty = match signed {
                0 => integer(unsigned, false),
                _ => integer(signed.max(2 * unsigned), true),
            };
            Argument { place, ty }
        };
        let places = (0..u8::MAX).take(count.unwrap_or(0));
        places.map(declared).collect()
    }

    /// Checks that the static probes have the arguments and can be read.
    fn check_static(&self) -> Result<(), ProbeError> {
        let Target { functions, .. } = &self.target;
        let refuse = |probe: &FoundFunction, detail| Err(self.target.error(&probe.name, detail));
        let Some(first) = functions.first() else {
            return Ok(());
        };
        if self.result.is_some() || !self.latency_min.is_zero() {
            let detail = "a static probe is a point in a program, without a result or a latency; omit --result and --min";
            return refuse(first, detail.to_owned());
        }
        for Argument { place, .. } in &self.args {
            let of = |probe: &FoundFunction| probe.arguments.get(usize::from(*place)).cloned();
            if functions.iter().all(|probe| of(probe).is_none()) {
                let count = first.arguments.len();
                return refuse(
                    first,
                    format!("it has no argument {place}, but {count}, from 0"),
                );
            }
            for probe in functions {
                if let Some(Err(why)) = of(probe) {
                    return refuse(
                        probe,
                        format!("its argument {place} {why}; give others with --arg"),
                    );
                }
            }
        }
        Ok(())
    }

    fn args_bytes(&self) -> u16 {
        self.args.iter().map(|argument| argument.ty.bytes()).sum()
    }

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        // Since then a program knows which of its functions is called.
        require_release("'function'", Release(5, 15))?;
        if !Path::new(UPROBES).exists() {
            return Err(ProbeError::Kernel {
                feature: "uprobes",
                detail: format!("{UPROBES} is missing"),
            });
        }
        self.selection.check()?;
        let mut hooks = vec![
            ("process_fork", Hook::Raw("sched_process_fork")),
            ("process_exec", Hook::Raw("sched_process_exec")),
            ("process_exit", Hook::Raw("sched_process_exit")),
        ];
        let functions = || Hook::Functions(&self.target, self.scope());
        if self.target.is_static {
            self.check_static()?;
            hooks.push(("probe_hit", functions()));
        } else {
            hooks.push(("function_enter", functions()));
            hooks.push(("function_return", functions()));
        }
        let payload_bytes = self.payload_bytes();
        let mut probe = Probe::open(
            "'function'",
            include_bytes_aligned!("../bpf/function.o"),
            Payloads::Fixed {
                bytes: usize::from(payload_bytes),
            },
            &self.globals(),
            &hooks,
        )?;
        self.selection.fill(&mut probe)?;
        Ok(probe)
    }

    /// The processes to which the kernel attaches the programs, so that calls cost the others nothing; none if the programs select them alone.
    fn scope(&self) -> &[u32] {
        let Selection {
            pids,
            names,
            follow,
            ..
        } = &self.selection;
        if !names.is_empty() || *follow || pids.len() > PIDS_MAX {
            return &[];
        }
        pids
    }

    fn globals(&self) -> Vec<(&'static str, Vec<u8>)> {
        let word = |value: u32| value.to_ne_bytes().to_vec();
        let mut at = 0;
        let mut args = Vec::new();
        for argument in &self.args {
            args.extend(value(source_of(argument.place), argument.ty, at));
            at += u32::from(argument.ty.bytes());
        }
        args.resize(ARGS_MAX * VALUE_BYTES, 0);
        let result = self.result.map(|ty| value((MACHINE.result, false), ty, 0));
        let latency_ns_min = u64::try_from(self.latency_min.as_nanos()).unwrap_or(u64::MAX);
        let mut globals = self.selection.globals().to_vec();
        globals.extend([
            ("args", args),
            ("operands", self.operands()),
            ("result", result.unwrap_or([0; VALUE_BYTES]).to_vec()),
            ("args_count", word(self.args.len() as u32)),
            ("args_bytes", word(self.args_bytes().into())),
            ("record_bytes", word(self.payload_bytes().into())),
            ("latency_ns_min", latency_ns_min.to_ne_bytes().to_vec()),
            ("stack_offset", word(MACHINE.stack)),
            ("link_offset", word(MACHINE.link)),
            ("return_bytes", word(MACHINE.return_bytes)),
        ]);
        globals
    }

    /// Where each place of the static probes has the arguments that are recorded.
    fn operands(&self) -> Vec<u8> {
        let mut encoded = vec![0; FUNCTIONS_MAX * ARGS_MAX * OPERAND_BYTES];
        let rows = encoded.chunks_mut(ARGS_MAX * OPERAND_BYTES);
        for (row, probe) in rows.zip(&self.target.functions) {
            for (to, argument) in row.chunks_mut(OPERAND_BYTES).zip(&self.args) {
                let operand = probe.arguments.get(usize::from(argument.place));
                if let Some(Ok(operand)) = operand {
                    to.copy_from_slice(&operand.encoded());
                }
            }
        }
        encoded
    }

    /// Counts the calls of a disarmed probe that have not returned.
    pub fn under_way(probe: &mut Probe) -> Result<u64, ProbeError> {
        let threads = probe.hash::<u32, u32>("threads")?;
        let mut count = 0;
        for thread in threads.iter() {
            let (_, depth) = thread?;
            count += u64::from(depth);
        }
        Ok(count)
    }
}

/// The type of integers of this many bytes.
fn integer(bytes: u8, is_signed: bool) -> ValueType {
    match (bytes, is_signed) {
        (1, true) => ValueType::I8,
        (2, true) => ValueType::I16,
        (4, true) => ValueType::I32,
        (_, true) => ValueType::I64,
        (1, false) => ValueType::U8,
        (2, false) => ValueType::U16,
        (4, false) => ValueType::U32,
        (_, false) => ValueType::U64,
    }
}

/// The length of `struct value` in `bpf/function.bpf.c`.
const VALUE_BYTES: usize = 20;

/// A `struct value`: where the word is, its type, and its place among the values of a payload.
fn value((from, on_stack): (u32, bool), ty: ValueType, at: u32) -> [u8; VALUE_BYTES] {
    let is_text = ty == ValueType::Text;
    let words = [from, on_stack.into(), is_text.into(), ty.bytes().into(), at];
    let mut bytes = [0; VALUE_BYTES];
    bytes.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
    bytes
}

/// The offset of an argument among the registers, or on the stack, and whether it is there.
fn source_of(place: u8) -> (u32, bool) {
    let place = usize::from(place);
    match MACHINE.args.get(place) {
        Some(offset) => (*offset, false),
        None => {
            let behind = (place - MACHINE.args.len()) as u32 * 8;
            (MACHINE.return_bytes + behind, true)
        }
    }
}
