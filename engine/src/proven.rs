//! Access to places that the surrounding code has proven to exist. Every module and crate uses it.
//!
//! If the proof is wrong, the code panics with the place and the length: a broken invariant never becomes wrong bytes. Foreign bytes (files, sockets,
//! arguments) are not proven: read them with `get`, and return an `Error`.

use std::fmt::Debug;
use std::slice::SliceIndex;

/// The element or the part of `slice` at `place`: a number or a range.
///
/// # Panics
/// The slice is too short.
#[inline]
#[track_caller]
pub fn at<T, I>(slice: &[T], place: I) -> &I::Output
where
    I: SliceIndex<[T]> + Clone + Debug,
{
    match slice.get(place.clone()) {
        Some(found) => found,
        None => beyond(&place, slice.len()),
    }
}

/// As [`at`], to write there.
///
/// # Panics
/// The slice is too short.
#[inline]
#[track_caller]
pub fn at_mut<T, I>(slice: &mut [T], place: I) -> &mut I::Output
where
    I: SliceIndex<[T]> + Clone + Debug,
{
    let length = slice.len();
    match slice.get_mut(place.clone()) {
        Some(found) => found,
        None => beyond(&place, length),
    }
}

#[cold]
#[track_caller]
fn beyond(place: &dyn Debug, length: usize) -> ! {
    panic!("{place:?} is out of bounds, there are {length}: an invariant of the code is broken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_parts_are_read_and_written() {
        let mut numbers = [1, 2, 3];
        assert_eq!(at(&numbers, 2), &3);
        assert_eq!(at(&numbers, 1..), [2, 3]);
        *at_mut(&mut numbers, 0) = 7;
        at_mut(&mut numbers, 1..=2).fill(9);
        assert_eq!(numbers, [7, 9, 9]);
    }

    #[test]
    #[should_panic = "2..4 is out of bounds, there are 3"]
    fn a_place_beyond_the_end_stops_with_the_numbers() {
        at(&[1, 2, 3], 2..4);
    }
}
