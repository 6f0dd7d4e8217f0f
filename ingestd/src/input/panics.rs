//! Turns panics of the Arrow and Parquet libraries, which some damaged files cause, into errors with the file's name.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use anyhow::anyhow;

thread_local! {
    /// Whether panics of this thread become errors.
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function that reads the named input. After a panic the reader must not be used again.
pub(super) fn decode<T>(name: &str, read: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !DECODING.get() {
                usual(panic);
            }
        }));
    });
    let outer = DECODING.replace(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    DECODING.set(outer);
    read.unwrap_or_else(|panic| {
        let why = message(&*panic);
        Err(anyhow!("cannot read {name}: it is damaged: {why}"))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("its content contradicts itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_the_input() {
        let words = [
            decode("'a.arrow'", || -> anyhow::Result<()> {
                panic!("offset {}", 7)
            }),
            decode("'a.arrow'", || -> anyhow::Result<()> { panic!("offset 7") }),
        ];
        for error in words {
            let text = error.unwrap_err().to_string();
            assert_eq!(text, "cannot read 'a.arrow': it is damaged: offset 7");
        }
        assert_eq!(decode("a.arrow", || Ok(7)).unwrap(), 7);
    }
}
