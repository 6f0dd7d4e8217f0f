//! `libloom_client`: the ring client with a C interface. cbindgen makes `loom_client.h` from this file, and a test compares them.
//!
//! Each call converts its arguments, calls the Rust client, and turns an error into a code and a text that the client keeps. A panic becomes an
//! error too.

#![expect(non_camel_case_types, reason = "C names its types in lower case")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ::loom_client::protocol::Synced;
use ::loom_client::{ClientError, RingClient, RingOptions};
use loom_engine::SourceId;

/// A connection to the daemon of one directory, with a ring of shared memory for each source that it defines. One thread may use it at a time,
/// and no fork of the process. It outlives the daemon: while none runs, records wait in its own memory, and the next daemon stores them. After
/// a minute without a daemon, calls fail.
pub struct loom_client {
    client: Option<RingClient>,
    error: CString,
}

/// The counts of this connection's records, or the counts since the current daemon took over its rings: received = stored + refused + dropped.
#[repr(C)]
pub struct loom_counts {
    pub received: u64,
    pub stored: u64,
    pub refused: u64,
    pub dropped: u64,
    /// The end of the record log: pass it as `at` to query exactly these records.
    pub position: u64,
}

/// Connects to the daemon that runs on a Loom directory. `ring_bytes` is the size of each ring: a power of two from 64 KiB to 64 MiB, or 0 for
/// 8 MiB. Returns 0, or -1. In both cases it stores a client in `client`: `loom_error` says why it is not connected, and `loom_close` frees it.
///
/// # Safety
/// `dir` is a string that ends with NUL, and `client` points to a place for the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_connect(
    dir: *const c_char,
    ring_bytes: u64,
    client: *mut *mut loom_client,
) -> c_int {
    // SAFETY: the caller passes a place for it.
    let Some(place) = (unsafe { client.as_mut() }) else {
        return FAILED;
    };
    let mut made = Box::new(loom_client {
        client: None,
        error: CString::default(),
    });
    let done = made.run(|this| {
        // SAFETY: the caller passes a string.
        let dir = unsafe { bytes_of(dir) }.ok_or(Failure::Null("dir"))?;
        let options = RingOptions {
            name: "libloom_client".to_owned(),
            capacity_bytes: ring_bytes,
            ..RingOptions::default()
        };
        let connected = RingClient::connect_with(Path::new(OsStr::from_bytes(dir)), options)?;
        this.client = Some(connected);
        Ok(())
    });
    *place = Box::into_raw(made);
    done
}

/// Defines the first `[[source]]` of a TOML text, and opens a ring for it. A source that exists is not an error. Returns 0, or -1.
///
/// # Safety
/// `client` comes from `loom_connect`, `toml` is a string that ends with NUL, and `source` points to a place for its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_define(
    client: *mut loom_client,
    toml: *const c_char,
    source: *mut u16,
) -> c_int {
    // SAFETY: the caller passes a client.
    let Some(this) = (unsafe { client.as_mut() }) else {
        return FAILED;
    };
    this.run(|this| {
        // SAFETY: the caller passes a string.
        let toml = unsafe { bytes_of(toml) }.ok_or(Failure::Null("toml"))?;
        let toml = str::from_utf8(toml).map_err(|_| Failure::NotUtf8)?;
        let defined = this.connected()?.define_one(toml)?;
        // SAFETY: the caller passes a place for it.
        let source = unsafe { source.as_mut() }.ok_or(Failure::Null("source"))?;
        *source = defined.0;
        Ok(())
    })
}

/// Pushes one payload in the layout of its source, without the own time: if the source has own time, it is the time of this call. It makes no
/// system call unless the ring is full or no daemon runs. If the ring is full, it waits for space, or drops and counts the record, as the
/// source's `on_overload` says. Returns 0, or -1.
///
/// # Safety
/// `client` comes from `loom_connect`, and `payload` points to so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_push(
    client: *mut loom_client,
    source: u16,
    payload: *const u8,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller passes a client.
    let Some(this) = (unsafe { client.as_mut() }) else {
        return FAILED;
    };
    let payload = if payload.is_null() {
        &[]
    } else {
        // SAFETY: the caller passes so many bytes.
        unsafe { std::slice::from_raw_parts(payload, bytes) }
    };
    // A push does not panic, so it needs no guard and costs the same as in Rust.
    let pushed = match &mut this.client {
        Some(connected) => connected.push(SourceId(source), payload),
        None => return FAILED,
    };
    match pushed {
        Ok(()) => DONE,
        Err(error) => this.fail(&error.to_string()),
    }
}

/// Returns when everything that was pushed before is visible to queries. `counts` may be NULL. Returns 0, or -1.
///
/// # Safety
/// `client` comes from `loom_connect`, and `counts` points to a place for the counts, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_sync(client: *mut loom_client, counts: *mut loom_counts) -> c_int {
    // SAFETY: the caller passes a client.
    let Some(this) = (unsafe { client.as_mut() }) else {
        return FAILED;
    };
    this.run(|this| {
        let synced = this.connected()?.sync()?;
        // SAFETY: the caller passes a place for them, or NULL.
        if let Some(counts) = unsafe { counts.as_mut() } {
            *counts = counts_of(&synced);
        }
        Ok(())
    })
}

/// Ends the connection and frees the client. The daemon takes the records in the rings; only a sync before it shows that. Records that wait for
/// the next daemon go to it if it runs by now, and are lost otherwise. NULL is allowed.
///
/// # Safety
/// `client` comes from `loom_connect` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_close(client: *mut loom_client) {
    if client.is_null() {
        return;
    }
    // SAFETY: the client was made by `loom_connect`, and the caller gives it up.
    let client = unsafe { Box::from_raw(client) };
    // Nobody can receive a panic any more.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(client)));
}

/// Returns the error of the latest call that failed; empty if none did. The text is valid until the next call.
///
/// # Safety
/// `client` comes from `loom_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_error(client: *const loom_client) -> *const c_char {
    // SAFETY: the caller passes a client.
    match unsafe { client.as_ref() } {
        Some(this) => this.error.as_ptr(),
        None => c"the client is NULL".as_ptr(),
    }
}

const DONE: c_int = 0;
const FAILED: c_int = -1;

enum Failure {
    Client(ClientError),
    Null(&'static str),
    NotUtf8,
    NotConnected,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Client(error)
    }
}

impl loom_client {
    /// Runs a call, and keeps its error.
    fn run(&mut self, call: impl FnOnce(&mut loom_client) -> Result<(), Failure>) -> c_int {
        let why = match catch_unwind(AssertUnwindSafe(|| call(self))) {
            Ok(Ok(())) => return DONE,
            Ok(Err(Failure::Client(error))) => error.to_string(),
            Ok(Err(Failure::Null(name))) => format!("{name} is NULL"),
            Ok(Err(Failure::NotUtf8)) => "the definition is not UTF-8".to_owned(),
            // `loom_connect` has stored the reason.
            Ok(Err(Failure::NotConnected)) => return FAILED,
            Err(_) => {
                "the client library has panicked; report this, with the lines on standard error"
                    .to_owned()
            }
        };
        self.fail(&why)
    }

    fn fail(&mut self, why: &str) -> c_int {
        let text = why.replace('\0', " ");
        self.error = CString::new(text).unwrap_or_default();
        FAILED
    }

    fn connected(&mut self) -> Result<&mut RingClient, Failure> {
        self.client.as_mut().ok_or(Failure::NotConnected)
    }
}

fn counts_of(synced: &Synced) -> loom_counts {
    loom_counts {
        received: synced.counts.received,
        stored: synced.counts.stored,
        refused: synced.counts.refused,
        dropped: synced.counts.dropped,
        position: synced.position.0,
    }
}

/// # Safety
/// The text is NULL, or ends with NUL and lives as long as it is used.
unsafe fn bytes_of<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller promises it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}
