//! The fuzzer's side of the process that Python hosts: it makes directories and has Python look at them.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use loom_fuzz::directory;

/// Looks at the directory with this name; does not return where something is wrong.
type Look = extern "C" fn(*const c_char);

struct Host {
    /// An empty folder.
    root: PathBuf,
    look: Look,
}

static HOST: OnceLock<Host> = OnceLock::new();

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        test_one: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;

    fn LLVMFuzzerTestOneInput(bytes: *const u8, length: usize) -> c_int;
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some(host) = HOST.get()
        && let Err(error) = host.try_input(input)
    {
        panic!("{}: {error}", host.root.display());
    }
});

/// Runs libFuzzer with the options and folders that it knows. It ends the process itself.
///
/// # Safety
///
/// `argv` is an array of `argc` texts with a null behind it, `root` a text; all stay as they are for as long as the process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_fuzz(
    mut argc: c_int,
    mut argv: *mut *mut c_char,
    root: *const c_char,
    look: Look,
) -> c_int {
    // SAFETY: the caller says that it is a text.
    let root = unsafe { CStr::from_ptr(root) };
    let root = PathBuf::from(std::ffi::OsString::from_vec(root.to_bytes().to_vec()));
    HOST.get_or_init(|| Host { root, look });
    // SAFETY: the caller's arguments, and a function of the type that is wanted.
    unsafe { LLVMFuzzerRunDriver(&mut argc, &mut argv, test_one) }
}

extern "C" fn test_one(bytes: *const u8, length: usize) -> c_int {
    // SAFETY: libFuzzer's own arguments, handed on.
    unsafe { LLVMFuzzerTestOneInput(bytes, length) }
}

impl Host {
    fn try_input(&self, input: &[u8]) -> std::io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Another name each time: what the extension remembers of a directory, it remembers by its path.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = self.root.join(number.to_string());
        directory::write(input, &dir, &[])?;
        let name = CString::new(dir.as_os_str().as_bytes())?;
        (self.look)(name.as_ptr());
        fs::remove_dir_all(&dir)
    }
}
