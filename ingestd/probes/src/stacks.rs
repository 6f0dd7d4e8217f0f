//! Converts records of `bpf/profile.bpf.c` to payloads: of samples, and of the stacks to which they refer.
//!
//! A stack is a text with the names of its functions, and its number is the hash of that text, so that it stays the same in the next recording. A stack
//! is written before the samples that refer to it, and again if they still do after a minute, because retention may remove the first payload before them.

use std::rc::Rc;

use quick_cache::unsync::Cache;

use crate::framed::{self, take};
use crate::names::{Names, Program};
use crate::profile::FRAMES_MAX;

/// The stacks that are remembered as written.
const WRITTEN_MAX: usize = 1 << 16;
/// A stack is written again after this time.
const AGAIN_NS: i64 = 60_000_000_000;
/// The longest text of a stack in the kernel or in the program.
const TEXT_BYTES_MAX: usize = 8_000;

/// The function in place of those that do not fit, outermost.
const CUT: &str = "[cut]";
/// The function that takes a thread off a processor.
const SWITCH: &str = ";__schedule;";
/// The function of a stack that the kernel could not read, or that has none.
const UNREADABLE: &str = "[unreadable]";

/// Payloads of both sources.
#[derive(Debug, Default)]
pub struct Payloads {
    /// Of samples, each `Stacks::SAMPLE_BYTES` long.
    pub samples: Vec<u8>,
    /// Of stacks, after their lengths (u16).
    pub stacks: Vec<u8>,
}

/// The names of functions, and the stacks that were written.
pub struct Stacks {
    names: Names,
    /// The times of the samples for which they were written, by their numbers.
    written: Cache<u64, i64>,
    /// The most functions of a stack.
    frames_max: usize,
    cut: u64,
}

impl Default for Stacks {
    fn default() -> Stacks {
        // An administrator may lower the kernel's limit.
        let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
        let limit = limit.ok().and_then(|text| text.trim().parse().ok());
        Stacks {
            names: Names::new(),
            written: Cache::new(WRITTEN_MAX),
            frames_max: limit.unwrap_or(FRAMES_MAX).min(FRAMES_MAX),
            cut: 0,
        }
    }
}

impl Stacks {
    /// The length of a payload of a sample, with the own time.
    pub const SAMPLE_BYTES: u16 = 59;

    /// Converts a batch of records.
    pub fn payloads(&mut self, batch: &[u8]) -> Payloads {
        self.names.next_batch();
        // The programs may end while names are sought.
        let records = records(batch);
        for record in &records {
            self.names.see(record.program);
        }
        let mut payloads = Payloads::default();
        for record in &records {
            self.convert(record, &mut payloads);
        }
        payloads
    }

    /// The samples whose stacks had more functions than fit.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// The addresses without a name.
    pub fn unnamed(&self) -> u64 {
        self.names.unnamed()
    }

    fn convert(&mut self, record: &Record, payloads: &mut Payloads) {
        let program = record.program;
        let mut user = self.text(&record.user, |names, address| {
            names.of_program(program, address)
        });
        let mut kernel = self.text(&record.kernel, Names::of_kernel);
        // The functions that the tracepoint itself calls are left out.
        if record.is_off
            && let Some((before, _)) = kernel.split_once(SWITCH)
        {
            kernel.truncate(before.len() + SWITCH.len() - 1);
        }
        if user.is_empty() && kernel.is_empty() {
            user = UNREADABLE.to_owned();
        }
        let number = number_of([&user, &kernel]);
        let is_written = self
            .written
            .get(&number)
            .is_some_and(|at_ns| at_ns.abs_diff(record.at_ns) < AGAIN_NS as u64);
        if !is_written {
            self.written.insert(number, record.at_ns);
            let nulls = [user.is_empty(), kernel.is_empty()];
            framed::payload(
                &mut payloads.stacks,
                record.at_ns,
                nulls,
                &[&number.to_le_bytes()],
                [&user, &kernel],
            );
        }
        let samples = &mut payloads.samples;
        samples.extend(record.at_ns.to_le_bytes());
        samples.push(u8::from(!record.is_off));
        samples.extend(number.to_le_bytes());
        samples.extend(
            [record.off_ns, record.cgroup]
                .map(u64::to_le_bytes)
                .as_flattened(),
        );
        samples.extend(
            [program.pid, record.tid]
                .map(u32::to_le_bytes)
                .as_flattened(),
        );
        samples.extend(record.cpu.to_le_bytes());
        samples.extend(record.comm);
    }

    /// The functions of a stack, the outermost first, with semicolons between them.
    fn text(&mut self, stack: &Stack, mut name: impl FnMut(&mut Names, u64) -> Rc<str>) -> String {
        let Some(stack) = stack else {
            return UNREADABLE.to_owned();
        };
        let mut bytes = 0;
        let mut functions = Vec::with_capacity(stack.len() + 1);
        let mut is_cut = stack.len() >= self.frames_max;
        for (place, address) in stack.iter().enumerate() {
            // A return address may be behind the last instruction of a function that does not return.
            let called_at = address.saturating_sub(u64::from(place > 0));
            let function = name(&mut self.names, called_at);
            bytes += function.len() + 1;
            if bytes > TEXT_BYTES_MAX {
                is_cut = true;
                break;
            }
            functions.push(function);
        }
        if is_cut {
            self.cut += 1;
            functions.push(CUT.into());
        }
        functions.reverse();
        functions.join(";")
    }
}

/// A record of the programs.
struct Record {
    at_ns: i64,
    off_ns: u64,
    cgroup: u64,
    program: Program,
    tid: u32,
    comm: [u8; 16],
    cpu: u16,
    is_off: bool,
    user: Stack,
    kernel: Stack,
}

/// The addresses of a stack, the innermost first; `None` if the kernel could not read it.
type Stack = Option<Vec<u64>>;

impl Record {
    fn of(mut rest: &[u8]) -> Record {
        let rest = &mut rest;
        let at_ns = i64::from_le_bytes(take(rest));
        let [off_ns, cgroup, stack] = [(); 3].map(|()| u64::from_ne_bytes(take(rest)));
        let [pid, tid] = [(); 2].map(|()| u32::from_ne_bytes(take(rest)));
        let [user_bytes, kernel_bytes] = [(); 2].map(|()| i32::from_ne_bytes(take(rest)));
        let comm = take(rest);
        let [cpu, is_off] = [(); 2].map(|()| u16::from_ne_bytes(take(rest)));
        let _padding: [u8; 4] = take(rest);
        let mut addresses = |bytes: i32| {
            let count = usize::try_from(bytes).ok()? / 8;
            Some((0..count).map(|_| u64::from_ne_bytes(take(rest))).collect())
        };
        Record {
            at_ns,
            off_ns,
            cgroup,
            program: Program { pid, stack },
            tid,
            comm,
            cpu,
            is_off: is_off != 0,
            user: addresses(user_bytes),
            kernel: addresses(kernel_bytes),
        }
    }
}

/// The records of a batch, which stand after their lengths.
fn records(mut rest: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while !rest.is_empty() {
        let bytes = u16::from_le_bytes(take(&mut rest));
        let (record, after) = rest
            .split_at_checked(bytes.into())
            .expect("the probe hands over whole records");
        records.push(Record::of(record));
        rest = after;
    }
    records
}

/// The FNV-1a hash of the texts of a stack.
fn number_of(texts: [&str; 2]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A record of a program that has ended, with so many functions on its stacks or the error of reading them.
    fn record(at_ns: i64, user: i32, kernel: i32) -> Vec<u8> {
        let mut record = at_ns.to_le_bytes().to_vec();
        record.extend([0, 1, 2].map(u64::to_ne_bytes).as_flattened());
        record.extend([u32::MAX, 7].map(u32::to_ne_bytes).as_flattened());
        let bytes = [user, kernel].map(|count| if count < 0 { count } else { 8 * count });
        record.extend(bytes.map(i32::to_ne_bytes).as_flattened());
        record.extend([0; 24]);
        let addresses = user.max(0) + kernel.max(0);
        record.extend((0..addresses).flat_map(|_| 1_u64.to_ne_bytes()));
        let mut framed = (record.len() as u16).to_le_bytes().to_vec();
        framed.append(&mut record);
        framed
    }

    /// The texts of the stacks that a batch adds.
    fn texts(stacks: &mut Stacks, batch: &[u8]) -> Vec<String> {
        let payloads = stacks.payloads(batch).stacks;
        let mut rest = &payloads[..];
        let mut texts = Vec::new();
        while !rest.is_empty() {
            let bytes = u16::from_le_bytes(take(&mut rest));
            let (payload, after) = rest.split_at(bytes.into());
            texts.push(String::from_utf8(payload[21..].to_vec()).unwrap());
            rest = after;
        }
        texts
    }

    #[test]
    fn stacks_that_are_cut_unreadable_or_empty_say_so() {
        let mut stacks = Stacks::default();
        let mut of = |user, kernel| texts(&mut stacks, &record(0, user, kernel)).concat();
        assert_eq!(of(2, 0), "[unknown];[unknown]");
        assert_eq!(of(-14, 0), "[unreadable]");
        assert_eq!(of(0, 0), "", "the same stack as before");
        assert_eq!(of(1, -14), "[unknown][unreadable]");
        let full = of(FRAMES_MAX as i32, 0);
        assert!(full.starts_with("[cut];[unknown];"), "{full}");
        assert_eq!(full.matches("[unknown]").count(), FRAMES_MAX);
        assert_eq!(stacks.cut(), 1);
    }

    #[test]
    fn a_text_that_is_too_long_is_cut() {
        let mut stacks = Stacks::default();
        let stack = Some(vec![0; 100]);
        let text = stacks.text(&stack, |_, _| "n".repeat(255).into());
        assert!(text.len() <= TEXT_BYTES_MAX + CUT.len() && text.starts_with("[cut];n"));
        assert_eq!(stacks.cut(), 1);
    }

    #[test]
    fn a_stack_is_written_again_after_a_minute() {
        let mut stacks = Stacks::default();
        let mut count = |at_ns| texts(&mut stacks, &record(at_ns, 1, 0)).len();
        let counts = [0, 1, 59, 60, 61, 130].map(|second| count(second * SECOND));
        assert_eq!(counts, [1, 0, 0, 1, 0, 1]);
    }
}
