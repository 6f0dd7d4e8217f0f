//! The fuzzer's changes of files: a list of small changes, each of a few bytes of input.
//!
//! A change is a byte that says what is done (low half) and to which region (high half), then what that takes. Regions are named by
//! their order, so that the same input means the same whatever the files hold.

use std::path::PathBuf;

use crate::files::Files;

/// A part of a file that changes aim at.
#[derive(Clone, Debug)]
pub struct Region {
    pub path: PathBuf,
    pub from: usize,
    /// At least 1.
    pub bytes: usize,
}

impl Region {
    /// All of a file that is there.
    pub fn whole(files: &Files, path: PathBuf) -> Region {
        let bytes = files.get(&path).map_or(0, <[u8]>::len);
        Region {
            path,
            from: 0,
            bytes: bytes.max(1),
        }
    }
}

const PAGE_BYTES: usize = 4096;

/// Numbers that are wrong in a telling way.
const TELLING: [u64; 12] = [
    0,
    1,
    u64::MAX,
    u64::MAX - 1,
    i64::MAX as u64,
    i64::MIN as u64,
    1 << 62,
    (1 << 62) - 8,
    u32::MAX as u64,
    0x7FF8_0000_0000_0001,
    0xFFFF,
    4096,
];

/// Reads changes from front to back, with zeroes past the end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (byte, rest) = crate::flagged(self.0);
        self.0 = rest;
        byte
    }

    fn number(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8 | usize::from(self.byte()) << 16
    }
}

/// Applies the changes that `input` says, to at most 16 regions. Returns the paths of what was changed.
pub fn apply(files: &mut Files, regions: &[Region], input: &[u8]) -> Vec<PathBuf> {
    let mut input = Input(input);
    let mut changed = Vec::new();
    while !input.0.is_empty() {
        let what = input.byte();
        let Some(region) = regions.get(usize::from(what >> 4) % regions.len().max(1)) else {
            break;
        };
        let Some(bytes) = files.get(&region.path) else {
            continue;
        };
        let mut bytes = bytes.to_vec();
        match what & 15 {
            0 => files.remove(&region.path),
            1 => files.put_odd(&region.path),
            kind => {
                change(&mut bytes, region, kind, &mut input);
                files.put(&region.path, bytes);
            }
        }
        if !changed.contains(&region.path) {
            changed.push(region.path.clone());
        }
    }
    changed
}

fn change(bytes: &mut Vec<u8>, region: &Region, kind: u8, input: &mut Input<'_>) {
    let at = region.from + input.number() % region.bytes;
    match kind {
        2 => bytes.truncate(at),
        3 => bytes.iter_mut().skip(at).for_each(|byte| *byte = 0),
        4 => {
            let (one, other) = (
                at / PAGE_BYTES,
                input.number() % (bytes.len() / PAGE_BYTES).max(1),
            );
            swap_pages(bytes, one * PAGE_BYTES, other * PAGE_BYTES);
        }
        5 | 6 => {
            let at = if kind == 5 { at & !7 } else { at & !1 };
            let number = TELLING
                .get(usize::from(input.byte()) % TELLING.len())
                .copied()
                .unwrap_or_default();
            let width = if kind == 5 { 8 } else { 2 };
            overwrite(
                bytes,
                at,
                number.to_le_bytes().get(..width).unwrap_or_default(),
            );
        }
        7 => {
            let step = input.byte();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = byte.wrapping_add(step);
            }
        }
        8 => {
            let more = input.byte();
            bytes.resize(bytes.len() + usize::from(more), 0xAA);
        }
        _ => {
            let length = usize::from(input.byte() % 32);
            let new: Vec<u8> = (0..length).map(|_| input.byte()).collect();
            overwrite(bytes, at, &new);
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + new.len()) {
        place.copy_from_slice(new);
    }
}

fn swap_pages(bytes: &mut [u8], one: usize, other: usize) {
    for (one, other) in (one..one + PAGE_BYTES).zip(other..other + PAGE_BYTES) {
        if one.max(other) < bytes.len() {
            bytes.swap(one, other);
        }
    }
}
