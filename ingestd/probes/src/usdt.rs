//! Reads the static probes of a program or library (USDT): places that its authors marked, which a debugger finds by notes of the file.

use object::elf::FileHeader64;
use object::read::elf::NoteIterator;
use object::{Endianness, Object, ObjectSection};

use crate::operand::{Operand, operands};

/// The section with the notes, and their type.
const NOTES: &str = ".note.stapsdt";
const NT_STAPSDT: u32 = 3;
/// A section whose address in the notes shows how far a program has moved the file's addresses since.
const BASE: &str = ".stapsdt.base";

/// A place of a static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaticProbe {
    /// `provider:name`.
    pub(crate) name: String,
    pub(crate) address: u64,
    /// The address of a number, in which the kernel counts who records the probe. The program omits a probe that nobody records.
    pub(crate) counter: Option<u64>,
    /// For an argument that cannot be read, the reason.
    pub(crate) arguments: Vec<Result<Operand, String>>,
}

/// The static probes of a file, with each of their places.
pub(crate) fn static_probes(file: &object::File<'_>) -> Result<Vec<StaticProbe>, String> {
    let Some(section) = file.section_by_name(NOTES) else {
        return Ok(Vec::new());
    };
    let damaged = |why: String| format!("its section {NOTES} is damaged: {why}");
    let base = file.section_by_name(BASE).map(|section| section.address());
    let notes = section
        .data()
        .and_then(|data| NoteIterator::<FileHeader64<Endianness>>::new(file.endianness(), 4, data));
    let mut notes = notes.map_err(|error| damaged(error.to_string()))?;
    let mut probes = Vec::new();
    while let Some(note) = notes.next().map_err(|error| damaged(error.to_string()))? {
        if note.n_type(file.endianness()) == NT_STAPSDT && note.name() == b"stapsdt" {
            let probe = probe_of(note.desc(), base, file);
            probes.push(probe.ok_or_else(|| damaged("a probe is cut off".to_owned()))?);
        }
    }
    Ok(probes)
}

/// A note has three addresses: of the probe, of the section `BASE` and of the counter, then the texts of the provider, the name and the arguments.
fn probe_of(note: &[u8], base: Option<u64>, file: &object::File<'_>) -> Option<StaticProbe> {
    let (words, texts) = note.split_at_checked(24)?;
    let (words, _) = words.as_chunks();
    let [address, base_then, counter] = words else {
        return None;
    };
    let [address, base_then, counter] =
        [address, base_then, counter].map(|word| u64::from_le_bytes(*word));
    let moved = base.map_or(0, |base| base.wrapping_sub(base_then));
    let mut texts = texts.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let (provider, name, arguments) = (texts.next()?, texts.next()?, texts.next()?);
    Some(StaticProbe {
        name: format!("{provider}:{name}"),
        address: address.wrapping_add(moved),
        counter: (counter != 0).then(|| counter.wrapping_add(moved)),
        arguments: operands(&arguments, file.architecture()),
    })
}
