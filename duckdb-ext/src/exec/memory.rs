//! Vectors in plain memory, in place of DuckDB's, which the tests of the fillers write into.

use std::ops::Range;
use std::ptr::NonNull;

use super::coded::Texts;
use super::vectors::{CAPACITY, RawVectors};
use crate::error::Result;
use crate::plan::types::SqlType;

pub struct MemoryVectors {
    /// Each entry has 16 bytes, so every type is aligned.
    data: Vec<Vec<u128>>,
    validity: Vec<Vec<u64>>,
    heaps: Vec<Vec<u8>>,
    pub constants: Vec<Option<String>>,
    /// The text of each row of the vectors that became dictionaries.
    pub dictionaries: Vec<Option<Vec<Option<Vec<u8>>>>>,
    pub rows: usize,
}

impl MemoryVectors {
    pub fn new(types: &[SqlType]) -> MemoryVectors {
        MemoryVectors {
            data: types.iter().map(|_| vec![0; CAPACITY]).collect(),
            validity: types
                .iter()
                .map(|_| vec![u64::MAX; CAPACITY / 64])
                .collect(),
            heaps: Vec::new(),
            constants: vec![None; types.len()],
            dictionaries: vec![None; types.len()],
            rows: 0,
        }
    }

    /// The text of a row of any vector of texts; `None` if it is NULL.
    pub fn text(&self, position: usize, row: usize) -> Option<Vec<u8>> {
        match (&self.constants[position], &self.dictionaries[position]) {
            (Some(text), _) => Some(text.as_bytes().to_vec()),
            (None, Some(texts)) => texts[row].clone(),
            (None, None) => self
                .valid(position, row)
                .then(|| self.string(position, row)),
        }
    }

    pub fn valid(&self, position: usize, row: usize) -> bool {
        self.validity[position][row / 64] >> (row % 64) & 1 == 1
    }

    fn bytes(&self, position: usize, width: usize, row: usize) -> Vec<u8> {
        let all: Vec<u8> = self.data[position]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        all[row * width..(row + 1) * width].to_vec()
    }

    pub fn integer(&self, position: usize, width: usize, row: usize) -> i128 {
        let mut wide = [0u8; 16];
        let bytes = self.bytes(position, width, row);
        if bytes[width - 1] & 0x80 != 0 {
            wide = [0xFF; 16];
        }
        wide[..width].copy_from_slice(&bytes);
        i128::from_le_bytes(wide)
    }

    /// A row of the first vector of maps, whose keys and values follow the `types` vectors.
    pub fn map(&self, position: usize, types: usize, row: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entry = self.bytes(position, 16, row);
        let number = |half: Range<usize>| u64::from_ne_bytes(entry[half].try_into().unwrap());
        let (offset, length) = (number(0..8) as usize, number(8..16) as usize);
        (offset..offset + length)
            .map(|at| (self.string(types, at), self.string(types + 1, at)))
            .collect()
    }

    pub fn string(&self, position: usize, row: usize) -> Vec<u8> {
        let entry = self.bytes(position, 16, row);
        let length = u32::from_ne_bytes(entry[..4].try_into().unwrap()) as usize;
        if length <= 12 {
            return entry[4..4 + length].to_vec();
        }
        let address = u64::from_ne_bytes(entry[8..].try_into().unwrap()) as usize;
        let heap = self
            .heaps
            .iter()
            .find(|heap| heap.as_ptr_range().contains(&(address as *const u8)))
            .expect("a long string lies in the heap");
        let start = address - heap.as_ptr() as usize;
        let bytes = heap[start..start + length].to_vec();
        assert_eq!(bytes[..4], entry[4..8], "the prefix is the string's");
        bytes
    }
}

// SAFETY: each vector has CAPACITY entries of 16 bytes, a bit for each, and heap blocks that are kept and never grow.
unsafe impl RawVectors for MemoryVectors {
    fn data(&mut self, position: usize) -> Result<NonNull<u8>> {
        Ok(NonNull::from(&mut self.data[position][..]).cast())
    }

    fn validity(&mut self, position: usize) -> Result<NonNull<u64>> {
        Ok(NonNull::from(&mut self.validity[position][..]).cast())
    }

    fn heap(&mut self, _: usize, _: usize, bytes: usize) -> Result<NonNull<u8>> {
        self.heaps.push(vec![0; bytes]);
        let block = self.heaps.last_mut().expect("one was pushed");
        Ok(NonNull::from(&mut block[..]).cast())
    }

    fn constant(&mut self, position: usize, text: &str, _: usize) -> Result<()> {
        self.constants[position] = Some(text.to_owned());
        self.validity[position].fill(u64::MAX);
        Ok(())
    }

    fn dictionary(&mut self, position: usize, texts: &Texts, codes: &[u8]) -> Result<bool> {
        assert!(!codes.is_empty(), "DuckDB makes no dictionary of no rows");
        let text = |code: &u8| (Some(*code) != texts.null).then(|| texts.text(*code).to_vec());
        self.dictionaries[position] = Some(codes.iter().map(text).collect());
        Ok(true)
    }

    fn map(&mut self, _: usize, entries: usize) -> Result<[usize; 2]> {
        let first = self.data.len();
        self.data.extend([vec![0; entries], vec![0; entries]]);
        Ok([first, first + 1])
    }

    fn set_rows(&mut self, rows: usize) -> Result<()> {
        self.rows = rows;
        Ok(())
    }
}
