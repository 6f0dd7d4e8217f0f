//! Finds functions of a program or library by a pattern, which their symbols match as they are or demangled, and its static probes.
//!
//! A function or probe is given to the kernel as an offset in the file, so that it is recorded in every process that runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use glob::Pattern;
use object::{Architecture, Object, ObjectSegment, ObjectSymbol, SymbolFlags, SymbolKind};

use crate::operand::Operand;
use crate::usdt::{StaticProbe, static_probes};
use crate::{ProbeError, binary};

/// The most functions of one capture, or places of static probes.
pub const FUNCTIONS_MAX: usize = 64;
/// The longest name of a function in records, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The most names in an error.
const SUGGESTIONS: usize = 3;
/// The prefix of instructions that the kernel of x86 does not move to a place of their own.
const LOCK: u8 = 0xf0;
/// The type of symbols whose function is chosen when a program starts.
const STT_GNU_IFUNC: u8 = 10;

#[cfg(target_arch = "x86_64")]
const MACHINE: Architecture = Architecture::X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: Architecture = Architecture::Aarch64;

/// Functions that return twice or never by the address on their stack, so that a redirected return ends the program.
const NOT_CALLED: [&str; 10] = [
    "_start",
    "vfork",
    "__vfork",
    "setjmp",
    "_setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "getcontext",
    "swapcontext",
    "__restore_rt",
];

/// The reason why such a function is refused.
const NOT_RETURNING: &str =
    "it does not return as functions do, so that recording it would end the program";
/// The beginning of the names of the loader's resolvers.
const RESOLVER: &str = "_dl_runtime_";

/// A function of the file, or a place of a static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFunction {
    /// Demangled, if that is unique.
    pub name: String,
    /// A number that depends on nothing but the name, so that it stays the same in the next recording.
    pub number: u32,
    pub(crate) offset: u64,
    /// The offset of a static probe's counter.
    pub(crate) counter: Option<u64>,
    /// The arguments of a static probe.
    pub(crate) arguments: Vec<Result<Operand, String>>,
}

/// The functions to record.
#[derive(Clone, Debug)]
pub struct Target {
    /// By their addresses.
    pub functions: Vec<FoundFunction>,
    /// Whether they are static probes, which are points in a program and no functions.
    pub is_static: bool,
    pub(crate) path: PathBuf,
    binary: String,
    symbol: String,
}

impl Target {
    /// Finds the functions of `BINARY:SYMBOL`, or the static probes of `BINARY:PROVIDER:NAME`; both may have the wildcards `*` and `?`. A library is
    /// sought first among those of `pids`.
    pub fn find(text: &str, pids: &[u32]) -> Result<Target, ProbeError> {
        let refuse = |detail: &str| ProbeError::Function {
            what: text.to_owned(),
            detail: detail.to_owned(),
        };
        let parts = text.split_once(':');
        let Some((binary, symbol)) =
            parts.filter(|parts| !parts.0.is_empty() && !parts.1.is_empty())
        else {
            return Err(refuse(
                "it is not a file and a function; give them as in 'libssl.so:SSL_read'",
            ));
        };
        let path = binary::find(binary, pids).ok_or_else(|| {
            refuse("no such program or library; give its path, or a name that 'ldconfig -p' shows")
        })?;
        // In the names of C++ and Rust, colons are in pairs.
        let is_static = symbol.contains(':') && !symbol.contains("::");
        let functions = find(&path, symbol, is_static).map_err(|detail| refuse(&detail))?;
        Ok(Target {
            functions,
            is_static,
            path,
            binary: binary.to_owned(),
            symbol: symbol.to_owned(),
        })
    }

    /// The symbol or pattern that was given; of a static probe, without its provider, which stands for all of its probes.
    pub fn symbol(&self) -> &str {
        match self.symbol.split_once(':') {
            Some((provider, "*")) if self.is_static => provider,
            Some((_, name)) if self.is_static => name,
            _ => &self.symbol,
        }
    }

    pub(crate) fn error(&self, function: &str, detail: String) -> ProbeError {
        ProbeError::Function {
            what: format!("{}:{function}", self.binary),
            detail,
        }
    }
}

/// A function's symbol.
struct Symbol {
    mangled: String,
    offset: u64,
    is_ifunc: bool,
    /// Whether its first instruction has the prefix `lock`.
    is_locked: bool,
}

/// The names of a symbol.
struct Names {
    /// None if the symbol is not mangled.
    demangled: Option<String>,
    /// A C++ name without its parameters.
    bare: Option<String>,
}

impl Symbol {
    fn names(&self) -> Names {
        if let Ok(name) = rustc_demangle::try_demangle(&self.mangled) {
            return Names {
                demangled: Some(format!("{name:#}")),
                bare: None,
            };
        }
        let options = cpp_demangle::DemangleOptions::new();
        let bare = options.no_params().no_return_type();
        let parsed = self.mangled.starts_with("_Z").then_some(&self.mangled);
        let parsed = parsed.and_then(|name| cpp_demangle::Symbol::new(name).ok());
        let name = |options| parsed.as_ref()?.demangle_with_options(options).ok();
        Names {
            demangled: name(&options),
            bare: name(&bare),
        }
    }

    /// The reason why it cannot be recorded.
    fn refusal(&self) -> Option<&'static str> {
        // Cold parts and the loader's resolvers are entered by a jump, and so their stacks do not begin with a return address.
        let name = self.mangled.as_str();
        if NOT_CALLED.contains(&name) || name.contains(".cold") || name.starts_with(RESOLVER) {
            return Some(NOT_RETURNING);
        }
        if self.is_ifunc {
            return Some(
                "a program chooses this function when it starts; give the one that is chosen, such as '__strlen_avx2' for strlen",
            );
        }
        (self.is_locked).then_some("the kernel cannot probe its first instruction")
    }
}

/// The functions or the static probes of a file that a pattern selects, or the reason why they cannot be recorded.
fn find(path: &Path, text: &str, is_static: bool) -> Result<Vec<FoundFunction>, String> {
    let data = std::fs::read(path).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*data)
        .map_err(|_| "the file is not a program or library".to_owned())?;
    if file.architecture() != MACHINE {
        return Err("it is of another machine, or of 32 bits".to_owned());
    }
    let segments: Vec<_> = file
        .segments()
        .map(|segment| (segment.address(), segment.file_range()))
        .collect();
    if is_static {
        return select_static(static_probes(&file)?, &segments, text);
    }
    select(&read(path, &data, &file, &segments)?, text)
}

/// The functions of a file.
fn read(
    path: &Path,
    data: &[u8],
    file: &object::File<'_>,
    segments: &[Segment],
) -> Result<Vec<Symbol>, String> {
    if file.section_by_name(".go.buildinfo").is_some() {
        return Err(
            "it is a Go program, which moves its stacks, so that redirected returns would end it"
                .to_owned(),
        );
    }
    let mut symbols = BTreeMap::new();
    add(file, segments, &mut symbols);
    let build_id = file.build_id().ok().flatten().unwrap_or_default();
    let link = file.gnu_debuglink().ok().flatten();
    for debug in binary::debug_files(path, build_id, link.map_or(&[], |(name, _)| name)) {
        let data = std::fs::read(debug).unwrap_or_default();
        if let Ok(file) = object::File::parse(&*data) {
            add(&file, segments, &mut symbols);
        }
    }
    if symbols.is_empty() {
        return Err(
            "the file has no symbols; install its debug symbols, or give a build that is not stripped"
                .to_owned(),
        );
    }
    let symbols = symbols.into_iter();
    let symbol = |((mangled, offset), is_ifunc)| Symbol {
        mangled,
        offset,
        is_ifunc,
        is_locked: cfg!(target_arch = "x86_64") && data.get(offset as usize) == Some(&LOCK),
    };
    Ok(symbols.map(symbol).collect())
}

/// The address of a part of a file in a process, and its offset and length in the file.
type Segment = (u64, (u64, u64));

fn offset_of(address: u64, segments: &[Segment]) -> Option<u64> {
    segments.iter().find_map(|(begin, (start, bytes))| {
        let behind = address.checked_sub(*begin)?;
        (behind < *bytes).then_some(start + behind)
    })
}

/// Adds the functions of a file by name and offset, and whether each is chosen when a program starts.
fn add(file: &object::File<'_>, segments: &[Segment], symbols: &mut BTreeMap<(String, u64), bool>) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
            continue;
        }
        let offset = offset_of(symbol.address(), segments);
        if let (Some(offset), Ok(name)) = (offset, symbol.name()) {
            // The name may have a version behind it.
            let name = name.split('@').next().unwrap_or(name);
            let is_ifunc = matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info & 0xf == STT_GNU_IFUNC);
            symbols.insert((name.to_owned(), offset), is_ifunc);
        }
    }
}

/// The static probes that a pattern selects, by their addresses.
fn select_static(
    mut probes: Vec<StaticProbe>,
    segments: &[Segment],
    text: &str,
) -> Result<Vec<FoundFunction>, String> {
    let pattern = pattern(text)?;
    let mut names: Vec<_> = probes.iter().map(|probe| probe.name.clone()).collect();
    probes.retain(|probe| pattern.matches(&probe.name));
    if probes.is_empty() {
        names.sort();
        names.dedup();
        names.sort_by(|a, b| likeness(b, text).total_cmp(&likeness(a, text)));
        names.truncate(SUGGESTIONS);
        return Err(match names.is_empty() {
            true => "the file has no static probes (USDT)".to_owned(),
            false => format!("the file has no such probe; it has {}", names.join(", ")),
        });
    }
    probes.sort_by_key(|probe| probe.address);
    let found = probes.into_iter().map(|probe| {
        let outside = |what| format!("its {what} is outside the file's segments");
        let offset = |address| offset_of(address, segments);
        let counter = probe
            .counter
            .map(|counter| offset(counter).ok_or_else(|| outside("counter")));
        Ok(FoundFunction {
            number: number_of(&probe.name),
            name: probe.name,
            offset: offset(probe.address).ok_or_else(|| outside("address"))?,
            counter: counter.transpose()?,
            arguments: probe.arguments,
        })
    });
    let found = found.collect::<Result<Vec<_>, String>>()?;
    bounded(found, "places of static probes")
}

fn bounded(found: Vec<FoundFunction>, what: &str) -> Result<Vec<FoundFunction>, String> {
    match found.len() {
        0..=FUNCTIONS_MAX => Ok(found),
        more => Err(format!(
            "{more} {what} match; at most {FUNCTIONS_MAX} are recorded at a time"
        )),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let mut wildcards = text.replace('[', "[[]");
    while wildcards.contains("**") {
        wildcards = wildcards.replace("**", "*");
    }
    Pattern::new(&wildcards).map_err(|error| error.to_string())
}

/// The functions that a pattern selects; those of exactly this name, if there are any.
fn select(symbols: &[Symbol], text: &str) -> Result<Vec<FoundFunction>, String> {
    let pattern = pattern(text)?;
    let named: Vec<_> = symbols.iter().map(|one| (one, one.names())).collect();
    let matching = |is_match: &dyn Fn(&str) -> bool| {
        let of = |(symbol, names): &&(&Symbol, Names)| {
            is_match(&symbol.mangled) || each(names).any(is_match)
        };
        named.iter().filter(of).collect::<Vec<_>>()
    };
    let mut found = matching(&|name| name == text);
    if found.is_empty() {
        found = matching(&|name| pattern.matches(name));
    }
    if found.is_empty() {
        let near = nearest(&named, text);
        let hint = if near.is_empty() {
            "give one that 'nm -C' shows, with '-D' for a library".to_owned()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        return Err(format!("the file has no such function; {hint}"));
    }
    let refusal = found.iter().find_map(|(symbol, _)| symbol.refusal());
    // Another name of the same function is no reason to record it.
    let refused = symbols.iter().filter(|symbol| symbol.refusal().is_some());
    let refused: BTreeSet<u64> = refused.map(|symbol| symbol.offset).collect();
    found.retain(|(symbol, _)| !refused.contains(&symbol.offset));
    if found.is_empty() {
        return Err(refusal.unwrap_or(NOT_RETURNING).to_owned());
    }
    // A function may have several names; those without underscores are for people.
    found.sort_by_key(|(symbol, _)| {
        let name = &symbol.mangled;
        (symbol.offset, name.starts_with('_'), name.len(), name)
    });
    found.dedup_by_key(|(symbol, _)| symbol.offset);
    let shown: Vec<&str> = found
        .iter()
        .map(|(symbol, names)| names.demangled.as_ref().unwrap_or(&symbol.mangled).as_str())
        .collect();
    let functions = found.iter().zip(&shown).map(|((symbol, _), name)| {
        let is_unique = shown.iter().filter(|other| *other == name).count() == 1;
        let name = if is_unique {
            name
        } else {
            symbol.mangled.as_str()
        };
        let (name, _) = name.split_at(name.floor_char_boundary(NAME_BYTES_MAX));
        FoundFunction {
            name: name.to_owned(),
            number: number_of(name),
            offset: symbol.offset,
            counter: None,
            arguments: Vec::new(),
        }
    });
    bounded(functions.collect(), "functions")
}

fn each(names: &Names) -> impl Iterator<Item = &str> {
    let names = [&names.demangled, &names.bare].into_iter();
    names.filter_map(|name| name.as_deref())
}

fn likeness(name: &str, text: &str) -> f64 {
    let part = name.contains(text) || text.contains(name) && name.len() > 2;
    strsim::jaro_winkler(name, text) + if part { 1.0 } else { 0.0 }
}

/// The names that are most like a text.
fn nearest<'a>(named: &'a [(&'a Symbol, Names)], text: &str) -> Vec<&'a str> {
    let mut names: Vec<_> = named
        .iter()
        .filter(|(symbol, _)| symbol.refusal().is_none())
        .map(|(symbol, names)| {
            names
                .bare
                .as_ref()
                .or(names.demangled.as_ref())
                .unwrap_or(&symbol.mangled)
                .as_str()
        })
        .map(|name| (likeness(name, text), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    names.dedup_by_key(|(_, name)| *name);
    names
        .into_iter()
        .take(SUGGESTIONS)
        .map(|(_, name)| name)
        .collect()
}

/// The FNV-1a hash of a name.
fn number_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
