//! The release of DuckDB 2 that loads this file, and the positions of its functions of C API v2.
//!
//! The API is not stable: DuckDB passes a table of functions, and a release may insert functions in the middle. The bindings are made for
//! one release. So `package.py` writes into each file its release and the positions of the bindings' functions there, from `versions.toml`.
//! At `LOAD` the functions are moved to where the bindings expect them.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

use duckdb_neo::extension::run_extension_entrypoint;
use duckdb_neo::ffi;

use super::load;

type Function = Option<unsafe extern "C" fn()>;

/// The number of functions that the bindings know.
const FUNCTIONS: usize = size_of::<ffi::duckdb_ext_api_v2>() / size_of::<Function>();

const PLACE_BYTES: usize = 128;
const MARK: &[u8] = b"loom: functions of ";

/// The mark, the name of the file and the runs of its functions, padded with zeros. The compiled text is for the release of the bindings;
/// `package.py` finds the place by the mark.
#[used]
static PLACE: [u8; PLACE_BYTES] = place(b"duckdb-v2.0.0 0+620");

#[expect(
    clippy::indexing_slicing,
    reason = "a place out of bounds does not compile"
)]
const fn place(text: &[u8]) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    let mut at = 0;
    while at < MARK.len() + text.len() {
        place[at] = if at < MARK.len() {
            MARK[at]
        } else {
            text[at - MARK.len()]
        };
        at += 1;
    }
    place
}

/// The name and the function runs of the loaded file.
fn written() -> Option<(&'static str, &'static str)> {
    // SAFETY: a static of this type. The file may hold other bytes than those that were compiled, so they are read from memory.
    let place: &'static [u8; PLACE_BYTES] = unsafe { &*std::hint::black_box(&raw const PLACE) };
    let text = place.strip_prefix(MARK)?;
    let text = text.split(|byte| *byte == 0).next()?;
    str::from_utf8(text).ok()?.split_once(' ')
}

/// The name of the file, such as `duckdb-v2.0.1`.
pub fn file() -> &'static str {
    written().map_or("duckdb-v2", |(file, _)| file)
}

/// The positions of the bindings' functions in another release, in their order; an inner `None` marks a function that the release does not
/// have. Returns `None` if the text has another form or another number of functions.
fn positions(runs: &str) -> Option<Vec<Option<usize>>> {
    let mut positions = Vec::with_capacity(FUNCTIONS);
    for run in runs.split(' ') {
        match (run.strip_prefix('-'), run.split_once('+')) {
            (Some(count), _) => {
                let count: usize = count.parse().ok()?;
                positions.extend((0..count.min(FUNCTIONS + 1)).map(|_| None));
            }
            (None, Some((first, count))) => {
                let (first, count): (usize, usize) = (first.parse().ok()?, count.parse().ok()?);
                positions.extend((0..count.min(FUNCTIONS + 1)).map(|at| Some(first + at)));
            }
            (None, None) => return None,
        }
    }
    (positions.len() == FUNCTIONS).then_some(positions)
}

thread_local! {
    /// The table that `arranged` returns; its reader copies it.
    static ARRANGED: RefCell<Vec<Function>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn arranged(
    _: ffi::duckdb_v2_extension_handle,
    _: *const c_char,
) -> *const c_void {
    ARRANGED.with_borrow(|table| match table.is_empty() {
        true => ptr::null(),
        false => table.as_ptr().cast(),
    })
}

/// Moves the functions to where the bindings expect them; `None` if that fails.
///
/// # Safety
/// `input` is what DuckDB gave to the entry point of C API v2.
unsafe fn arrange(input: &ffi::duckdb_v2_extension_input) -> Option<Vec<Function>> {
    let (_, runs) = written()?;
    let positions = positions(runs)?;
    // SAFETY: the function is DuckDB's; it ignores the version for a file that is bound to one release.
    let given = unsafe { input.get_api?(input.extension, c"v2.0.0".as_ptr()) };
    let given = NonNull::new(given.cast_mut().cast::<Function>())?;
    // SAFETY: DuckDB has checked that this file is for its release, whose table has at least this many functions.
    let function = |at: usize| unsafe { given.add(at).read() };
    let found = positions.into_iter().map(|at| at.and_then(function));
    Some(found.collect())
}

/// DuckDB 2 calls this at `LOAD`.
///
/// # Safety
/// Only DuckDB may call it, with its own input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_init_c_api_v2(input: *mut ffi::duckdb_v2_extension_input) {
    // SAFETY: the input is DuckDB's.
    let Some(input) = (unsafe { input.as_ref() }) else {
        return;
    };
    // SAFETY: as above.
    ARRANGED.set(unsafe { arrange(input) }.unwrap_or_default());
    let input = ffi::duckdb_v2_extension_input {
        get_api: Some(arranged),
        ..*input
    };
    // SAFETY: as above, and the functions stand where the bindings look for them. Without any, DuckDB refuses the extension.
    unsafe { run_extension_entrypoint(&input, "v2.0.0", load) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_as_compiled_is_for_the_release_of_the_bindings() {
        let (file, runs) = written().unwrap();
        assert_eq!(file, "duckdb-v2.0.0");
        let expected: Vec<_> = (0..FUNCTIONS).map(Some).collect();
        assert_eq!(positions(runs), Some(expected));
    }

    #[test]
    fn each_release_of_the_table_places_every_function_once() {
        let table = include_str!("../../versions.toml");
        let (_, table) = table.split_once("[v2]").unwrap();
        let lines = table.lines().take_while(|line| !line.starts_with('['));
        let releases: Vec<_> = lines.filter_map(|line| line.split_once(" = ")).collect();
        assert!(releases.len() >= 2, "{releases:?}");
        for (release, runs) in releases {
            let runs = runs.trim_matches('"');
            assert!(MARK.len() + "duckdb-v ".len() + release.len() + runs.len() < PLACE_BYTES);
            let positions = positions(runs).unwrap_or_else(|| panic!("{release}: {runs}"));
            let found: Vec<usize> = positions.into_iter().flatten().collect();
            assert!(found.is_sorted_by(|a, b| a < b), "{release}: {runs}");
        }
    }

    #[test]
    fn runs_that_do_not_add_up_are_refused() {
        for runs in [
            "",
            "0+619",
            "0+621",
            "0+18446744073709551615",
            "-621",
            "620",
            "0+620 x",
        ] {
            assert_eq!(positions(runs), None, "{runs}");
        }
    }
}
