//! Names the addresses of stacks: functions of programs, of their libraries and of the kernel.
//!
//! Programs are distinguished by their process and by the address where their first stack begins, which differs each time that a program is executed. What
//! a program has mapped is read when it is seen first, so that its addresses have names after it ended.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use quick_cache::unsync::Cache;

use crate::binary::{Mapping, mappings};

/// The limits of what is remembered.
const NAMES_MAX: usize = 1 << 17;
const PROGRAMS_MAX: usize = 1 << 12;
const FILES_MAX: usize = 256;
/// The longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 255;

const UNKNOWN: &str = "[unknown]";
const VDSO: &str = "[vdso]";

/// A program that a process executes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    /// The address where its first stack begins.
    pub(crate) stack: u64,
}

impl Program {
    /// Its mappings; `None` if the process has ended, executes another program, or is hidden from this one.
    fn mappings(self) -> Option<Vec<Mapping>> {
        let mappings = mappings(self.pid);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The name of the process may have spaces and parentheses.
        let (_, numbers) = stat.rsplit_once(") ")?;
        let stack = numbers.split(' ').nth(25)?;
        (stack.parse() == Ok(self.stack)).then_some(mappings)
    }
}

/// The mappings of a program.
struct Mapped {
    mappings: Vec<Mapping>,
    /// The latest batch before which it was read.
    batch: u64,
}

/// The names of addresses, with those of functions that the compiler inlined there behind them, after semicolons.
pub(crate) struct Names {
    symbolizer: Symbolizer,
    files: HashSet<PathBuf>,
    programs: Cache<Program, Mapped>,
    names: Cache<(Program, u64), Rc<str>>,
    own_vdso: Option<Mapping>,
    batch: u64,
    unnamed: u64,
}

impl Names {
    pub(crate) fn new() -> Names {
        let is_vdso = |mapping: &Mapping| mapping.name == VDSO;
        Names {
            symbolizer: Symbolizer::new(),
            files: HashSet::new(),
            programs: Cache::new(PROGRAMS_MAX),
            names: Cache::new(NAMES_MAX),
            own_vdso: mappings(std::process::id()).into_iter().find(is_vdso),
            batch: 0,
            unnamed: 0,
        }
    }

    /// The addresses that had no name so far.
    pub(crate) fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Begins a batch: what a program has mapped since is read when an address is new.
    pub(crate) fn next_batch(&mut self) {
        self.batch += 1;
    }

    /// Reads what a program has mapped, if it is not known.
    pub(crate) fn see(&mut self, program: Program) {
        if self.programs.get(&program).is_none() {
            self.read(program);
        }
    }

    fn read(&mut self, program: Program) {
        let known = self.programs.remove(&program);
        let known = known.map(|(_, mapped)| mapped.mappings);
        let mapped = Mapped {
            mappings: program.mappings().or(known).unwrap_or_default(),
            batch: self.batch,
        };
        self.programs.insert(program, mapped);
    }

    /// The name of an address of the kernel.
    pub(crate) fn of_kernel(&mut self, address: u64) -> Rc<str> {
        let kernel = Program { pid: 0, stack: 0 };
        self.remembered(kernel, address, |names| {
            let source = Source::Kernel(Kernel {
                vmlinux: MaybeDefault::None,
                ..Kernel::default()
            });
            names.symbol(&source, Input::AbsAddr(address))
        })
    }

    /// The name of an address of a program, or at least its place in a file.
    pub(crate) fn of_program(&mut self, program: Program, address: u64) -> Rc<str> {
        self.remembered(program, address, |names| {
            let mapping = names.mapping(program, address)?;
            let offset = address - mapping.addresses.start + mapping.offset;
            if mapping.name == VDSO {
                // All programs have the same one.
                let own = names.own_vdso.as_ref()?.addresses.start;
                let source = Source::Process(Process::new(Pid::Slf));
                let address = own + (address - mapping.addresses.start);
                return names.symbol(&source, Input::AbsAddr(address));
            }
            let files = mapping.files(program.pid)?;
            let found = files.iter().find_map(|file| names.of_file(file, offset));
            if found.is_none() {
                names.unnamed += 1;
            }
            let file = Path::new(&mapping.name).file_name()?.to_string_lossy();
            Some(found.unwrap_or_else(|| clean(&format!("{file}+{offset:#x}"))))
        })
    }

    fn remembered(
        &mut self,
        program: Program,
        address: u64,
        find: impl FnOnce(&mut Names) -> Option<String>,
    ) -> Rc<str> {
        if let Some(name) = self.names.get(&(program, address)) {
            return Rc::clone(name);
        }
        let name = find(self).unwrap_or_else(|| {
            self.unnamed += 1;
            UNKNOWN.to_owned()
        });
        let name: Rc<str> = name.into();
        self.names.insert((program, address), Rc::clone(&name));
        name
    }

    /// The mapping at an address of a program, which may have mapped more since it was seen first.
    fn mapping(&mut self, program: Program, address: u64) -> Option<Mapping> {
        let find = |mapped: &Mapped| {
            let mut mappings = mapped.mappings.iter();
            let found = mappings.find(|mapping| mapping.addresses.contains(&address));
            found.cloned()
        };
        let mapped = self.programs.get(&program);
        let found = mapped.and_then(find);
        if found.is_some() || mapped.is_some_and(|mapped| mapped.batch == self.batch) {
            return found;
        }
        self.read(program);
        self.programs.get(&program).and_then(find)
    }

    fn of_file(&mut self, file: &Path, offset: u64) -> Option<String> {
        if !file.is_file() {
            return None;
        }
        if self.files.len() >= FILES_MAX {
            self.symbolizer = Symbolizer::new();
            self.files.clear();
        }
        self.files.insert(file.to_owned());
        let mut elf = Elf::new(file);
        let found = self.symbol(&Source::Elf(elf.clone()), Input::FileOffset(offset));
        found.or_else(|| {
            // The debug symbols may be of another build.
            elf.debug_syms = false;
            self.symbol(&Source::Elf(elf), Input::FileOffset(offset))
        })
    }

    fn symbol(&self, source: &Source<'_>, at: Input<u64>) -> Option<String> {
        let Ok(Symbolized::Sym(symbol)) = self.symbolizer.symbolize_single(source, at) else {
            return None;
        };
        let inlined = symbol.inlined.iter().map(|inlined| &*inlined.name);
        let names: Vec<_> = std::iter::once(&*symbol.name)
            .chain(inlined)
            .map(clean)
            .collect();
        Some(names.join(";"))
    }
}

/// A name without semicolons, which separate functions, and not too long.
fn clean(name: &str) -> String {
    let (name, _) = name.split_at(name.floor_char_boundary(NAME_BYTES_MAX));
    name.replace(';', ":")
}
