//! Allocates memory whose size depends on a file, and returns an error if the system refuses it. A failed allocation of the standard library would end the
//! process, which is often the user's.
//!
//! Readers and decoders use this for everything that grows with a file, a chunk or a row group.

use std::path::PathBuf;

use crate::error::Error;

/// The system refuses this many bytes of memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NoMemory {
    pub bytes: usize,
}

impl NoMemory {
    /// Adds the file whose content needs the memory.
    pub fn of(self, path: impl Into<PathBuf>) -> Error {
        Error::Memory {
            path: path.into(),
            bytes: self.bytes,
        }
    }
}

/// Reserves room for `more` elements.
pub fn reserve<T>(elements: &mut Vec<T>, more: usize) -> Result<(), NoMemory> {
    let all = elements.len().saturating_add(more);
    let reserved = elements.try_reserve(more);
    reserved.map_err(|_| NoMemory {
        bytes: all.saturating_mul(size_of::<T>()),
    })
}

/// Resizes to `count` elements; new ones are the default.
pub fn resize<T: Copy + Default>(elements: &mut Vec<T>, count: usize) -> Result<(), NoMemory> {
    reserve(elements, count.saturating_sub(elements.len()))?;
    elements.resize(count, T::default());
    Ok(())
}

/// Allocates exactly `count` default elements.
pub fn zeroed<T: Copy + Default>(count: usize) -> Result<Vec<T>, NoMemory> {
    let mut elements = exact(count)?;
    elements.resize(count, T::default());
    Ok(elements)
}

/// Copies the elements into exactly the memory that they need.
pub fn copied<T: Copy>(from: &[T]) -> Result<Vec<T>, NoMemory> {
    let mut elements = exact(from.len())?;
    elements.extend_from_slice(from);
    Ok(elements)
}

/// Fails if this many bytes are not available now. It precedes work of a library that allocates piece by piece and ends the process if one is refused.
pub fn require(bytes: usize) -> Result<(), NoMemory> {
    exact::<u8>(bytes).map(drop)
}

fn exact<T>(count: usize) -> Result<Vec<T>, NoMemory> {
    let mut elements = Vec::new();
    let reserved = elements.try_reserve_exact(count);
    reserved.map_err(|_| NoMemory {
        bytes: count.saturating_mul(size_of::<T>()),
    })?;
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This exceeds any address space.
    const BEYOND: usize = usize::MAX / 8;

    #[test]
    fn refused_memory_is_an_error_that_names_the_file_and_the_bytes() {
        let refused = zeroed::<u64>(BEYOND / 8).unwrap_err();
        let said = refused.of("dir/records/0.col").to_string();
        assert!(said.starts_with("dir/records/0.col: "), "{said}");
        assert!(
            said.contains(&format!(" {} bytes", BEYOND / 8 * 8)),
            "{said}"
        );
        let mut some = vec![1u8, 2];
        assert_eq!(
            reserve(&mut some, BEYOND),
            Err(NoMemory { bytes: BEYOND + 2 })
        );
        assert_eq!(resize(&mut some, BEYOND), Err(NoMemory { bytes: BEYOND }));
        assert_eq!(some, [1, 2]);
        assert!(require(BEYOND).is_err());
        // The size in bytes overflows here.
        assert!(zeroed::<u64>(usize::MAX).is_err());
    }

    #[test]
    fn granted_memory_has_the_requested_size() {
        let mut some = zeroed::<u16>(3).unwrap();
        resize(&mut some, 5).unwrap();
        assert_eq!(some, [0; 5]);
        resize(&mut some, 1).unwrap();
        reserve(&mut some, 7).unwrap();
        assert_eq!(copied(&some).unwrap(), [0]);
        require(1 << 20).unwrap();
    }
}
